// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 that answers from a gpuaudit.nvml/1 document (GPUAUDIT_FAKE_NVML=/path).
//
// Each call looks up its key: {"v": ...} is returned, {"e": n} is returned as the error, a missing
// key is NOT_SUPPORTED. For faults: {"sleep": true} never returns, {"crash": true} is a segfault.
// Layouts and symbol versions: nvml.h, as spelled out by nvidia-ml-py (pynvml.py).
// -DOLD_LIBRARY leaves out what a driver before 535 does not export.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

// ---- the document --------------------------------------------------------------------------

typedef const node *device;  // a device handle is its object in the document

static const node *document;
static bool initialised;

static bool load(void) {
    if (document) return true;
    const char *path = getenv("GPUAUDIT_FAKE_NVML");
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file) return false;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    bool whole = fread(text, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    at = text;
    node *root = parse_value();
    blank();
    if (!whole || broken || *at) return false;
    document = root;
    return true;
}

static int judge(const node *answer, const node **value) {
    if (!answer) return NOT_SUPPORTED;
    if (get(answer, "sleep"))
        for (;;) pause();
    if (get(answer, "crash")) *(volatile int *)0 = 1;
    if (get(answer, "e")) return (int)number(get(answer, "e"));
    *value = get(answer, "v");
    return *value ? SUCCESS : UNKNOWN;
}

// The answer to `format`, in the system part for a NULL device.
__attribute__((format(printf, 3, 4)))
static int ask(device from, const node **value, const char *format, ...) {
    char key[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key - 2, format, arguments);
    va_end(arguments);
    if (!initialised) return UNINITIALIZED;
    const node *answers = from ? from : get(document, "system");
    node *answer = (node *)get(answers, key);
    if (answer && answer->asked) {  // the second time there may be another answer
        strcat(key, "#2");
        node *second = (node *)get(answers, key);
        if (second) answer = second;
    }
    if (answer) answer->asked = true;
    return judge(answer, value);
}

static int copy_text(const node *value, char *out, u32 size) {
    if (value->kind != J_STRING) return UNKNOWN;
    if (strlen(value->text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value->text);
    return SUCCESS;
}

// ---- getters of one shape -------------------------------------------------------------------

#define TRY(call) do { int failed = (call); if (failed) return failed; } while (0)

#define SCALAR(type, name)                                            \
    int nvmlDeviceGet##name(device from, type *out) {                 \
        const node *value;                                            \
        TRY(ask(from, &value, "nvmlDeviceGet" #name));                \
        *out = (type)number(value);                                   \
        return SUCCESS;                                               \
    }

#define SCALAR_OF(type, name)                                         \
    int nvmlDeviceGet##name(device from, int argument, type *out) {   \
        const node *value;                                            \
        TRY(ask(from, &value, "nvmlDeviceGet" #name "(%d)", argument)); \
        *out = (type)number(value);                                   \
        return SUCCESS;                                               \
    }

#define PAIR(name)                                                    \
    int nvmlDeviceGet##name(device from, u32 *first, u32 *second) {   \
        const node *value;                                            \
        TRY(ask(from, &value, "nvmlDeviceGet" #name));                \
        *first = (u32)number(item(value, 0));                         \
        *second = (u32)number(item(value, 1));                        \
        return SUCCESS;                                               \
    }

#define TEXT(prefix, name)                                            \
    int nvml##prefix##Get##name(DEVICE_##prefix char *out, u32 size) { \
        const node *value;                                            \
        TRY(ask(FROM_##prefix, &value, "nvml" #prefix "Get" #name));  \
        return copy_text(value, out, size);                           \
    }
#define DEVICE_Device device from,
#define FROM_Device from
#define DEVICE_System
#define FROM_System NULL

SCALAR(u32, MinorNumber)
SCALAR(u32, Brand)
SCALAR(u32, Architecture)
SCALAR(u32, CurrPcieLinkGeneration)
SCALAR(u32, MaxPcieLinkGeneration)
SCALAR(u32, GpuMaxPcieLinkGeneration)
SCALAR(u32, CurrPcieLinkWidth)
SCALAR(u32, MaxPcieLinkWidth)
SCALAR(u32, PcieReplayCounter)
SCALAR(u32, PersistenceMode)
SCALAR(u32, RetiredPagesPendingStatus)
SCALAR(u32, PerformanceState)
SCALAR(u32, EnforcedPowerLimit)
SCALAR(u32, PowerManagementLimit)
SCALAR(u32, PowerManagementDefaultLimit)
SCALAR(u32, PowerUsage)
SCALAR(u32, ComputeMode)
SCALAR(u32, VirtualizationMode)
SCALAR(u32, DisplayActive)
SCALAR(u32, AccountingMode)
SCALAR(u64, CurrentClocksThrottleReasons)
SCALAR_OF(u32, ClockInfo)
SCALAR_OF(u32, MaxClockInfo)
SCALAR_OF(u32, ApplicationsClock)
SCALAR_OF(u32, DefaultApplicationsClock)
SCALAR_OF(u32, Temperature)
SCALAR_OF(u32, TemperatureThreshold)
SCALAR_OF(u32, NvLinkState)
SCALAR_OF(u32, NvLinkRemoteDeviceType)
SCALAR_OF(u32, MaxCustomerBoostClock)
PAIR(MigMode)
PAIR(EccMode)
PAIR(PowerManagementLimitConstraints)
PAIR(GspFirmwareMode)
PAIR(AutoBoostedClocksEnabled)
TEXT(System, DriverVersion)
TEXT(Device, Name)
TEXT(Device, UUID)
TEXT(Device, Serial)
TEXT(Device, VbiosVersion)
TEXT(Device, InforomImageVersion)

// ---- the rest -------------------------------------------------------------------------------

// What the real library does as root to /dev (strace of 580.159.04), in the folder named by
// GPUAUDIT_FAKE_NVML_MEDDLES; the file "opened" there tells that the driver was opened.
static void meddle(void) {
    const char *folder = getenv("GPUAUDIT_FAKE_NVML_MEDDLES");
    if (!folder || chdir(folder)) return;
    FILE *file = fopen("opened", "w");
    if (file) fclose(file);
    int failed = !!chmod("nvidia0", 0666) + !!chown("nvidia0", getuid(), getgid());
    failed += !!mkdir("nvidia-caps", 0755) + !!mknod("nvidia1", S_IFREG | 0666, 0);
    failed += !!unlink("link") + !!symlink("nvidia1", "link");
    failed += !!system("touch modprobed");
    if (failed) errno = EPERM;
}

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    meddle();
    const node *value;
    if (!load()) return UNKNOWN;
    TRY(judge(get(document, "init"), &value));
    initialised = true;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return initialised ? SUCCESS : UNINITIALIZED; }

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

// The real library answers this one before nvmlInit, and when nvmlInit failed.
int nvmlSystemGetNVMLVersion(char *out, u32 size) {
    const node *value;
    if (!load()) return UNKNOWN;
    TRY(judge(get(get(document, "system"), "nvmlSystemGetNVMLVersion"), &value));
    return copy_text(value, out, size);
}

static int system_number(const char *key, u32 *out) {
    const node *value;
    TRY(ask(NULL, &value, "%s", key));
    *out = (u32)number(value);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    return system_number("nvmlSystemGetCudaDriverVersion_v2", (u32 *)out);
}
int nvmlDeviceGetCount_v2(u32 *out) { return system_number("nvmlDeviceGetCount_v2", out); }
int nvmlGetExcludedDeviceCount(u32 *out) {
    return system_number("nvmlGetExcludedDeviceCount", out);
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, device *out) {
    const node *value, *found = item(get(document, "devices"), index);
    if (!initialised) return UNINITIALIZED;
    if (!found) return INVALID_ARGUMENT;
    TRY(ask(found, &value, "nvmlDeviceGetHandleByIndex_v2"));
    *out = found;
    return SUCCESS;
}

typedef struct {
    char busIdLegacy[16];
    u32 domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_t;

int nvmlDeviceGetPciInfo_v3(device from, pci_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetPciInfo"));
    out->domain = (u32)number(get(value, "domain"));
    out->bus = (u32)number(get(value, "bus"));
    out->device = (u32)number(get(value, "device"));
    out->pciDeviceId = (u32)number(get(value, "pciDeviceId"));
    out->pciSubSystemId = (u32)number(get(value, "pciSubSystemId"));
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xFFFF,
             out->bus & 0xFF, out->device & 0xFF);
    return get(value, "busId") ? copy_text(get(value, "busId"), out->busId, 32) : UNKNOWN;
}

typedef struct { u32 gpu, memory; } utilization_t;

int nvmlDeviceGetUtilizationRates(device from, utilization_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetUtilizationRates"));
    *out = (utilization_t){(u32)number(get(value, "gpu")), (u32)number(get(value, "memory"))};
    return SUCCESS;
}

typedef struct { u64 bar1Total, bar1Free, bar1Used; } bar1_t;

int nvmlDeviceGetBAR1MemoryInfo(device from, bar1_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetBAR1MemoryInfo"));
    *out = (bar1_t){number(get(value, "bar1Total")), number(get(value, "bar1Free")),
                    number(get(value, "bar1Used"))};
    return SUCCESS;
}

// A versioned struct starts with sizeof | version << 24; the library refuses any other.
#define VERSION(type, number) ((u32)(sizeof(type) | (number) << 24))

int nvmlDeviceGetTotalEccErrors(device from, int type, int counter, u64 *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetTotalEccErrors(%d,%d)", type, counter));
    *out = number(value);
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(device from, u32 *cor, u32 *unc, u32 *pending, u32 *failed) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetRemappedRows"));
    u32 *out[] = {cor, unc, pending, failed};
    for (u32 i = 0; i < 4; i++) *out[i] = (u32)number(item(value, i));
    return SUCCESS;
}

int nvmlDeviceGetRowRemapperHistogram(device from, u32 *out) {
    static const char *names[] = {"max", "high", "partial", "low", "none"};
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetRowRemapperHistogram"));
    for (int i = 0; i < 5; i++) out[i] = (u32)number(get(value, names[i]));
    return SUCCESS;
}

// Lists are asked twice: for the size, then with room.
int nvmlDeviceGetRetiredPages(device from, int cause, u32 *count, u64 *pages) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetRetiredPages(%d)", cause));
    u32 room = *count, found = (u32)number(value);
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < found; i++) pages[i] = 0x1000ULL * i;
    return SUCCESS;
}

typedef struct { u32 pid; u64 usedGpuMemory; u32 gpuInstanceId, computeInstanceId; } process_t;

#define PROCESSES(kind)                                                                     \
    int nvmlDeviceGet##kind##RunningProcesses_v3(device from, u32 *count, process_t *out) { \
        const node *value, *one;                                                            \
        TRY(ask(from, &value, "nvmlDeviceGet" #kind "RunningProcesses"));                   \
        u32 room = *count, found = 0;                                                       \
        while (item(value, found)) found++;                                                 \
        *count = found;                                                                     \
        if (found > room) return INSUFFICIENT_SIZE;                                         \
        for (u32 i = 0; (one = item(value, i)); i++)                                        \
            out[i] = (process_t){(u32)number(one), 0, ~0u, ~0u};                            \
        return SUCCESS;                                                                     \
    }

PROCESSES(Compute)
PROCESSES(Graphics)
PROCESSES(MPSCompute)

int nvmlDeviceGetGspFirmwareVersion(device from, char *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetGspFirmwareVersion"));
    return copy_text(value, out, 64);
}

typedef struct {
    u32 fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    u32 valueType;
    int nvmlReturn;
    u64 value;
} field_t;

// Fields whose scope is a link: NVLink's from 161 on, C2C's status.
#define OF_LINK(id) (((id) >= 161 && (id) <= 168) || (id) == 171 || ((id) >= 201 && (id) <= 222))

// The call succeeds even when each of its values carries an error.
int nvmlDeviceGetFieldValues(device from, int count, field_t *fields) {
    for (int i = 0; i < count; i++) {
        const node *value = NULL;
        char arguments[32];
        u32 field = fields[i].fieldId;
        snprintf(arguments, sizeof arguments, OF_LINK(field) ? "%u,%u" : "%u", field,
                 fields[i].scopeId);
        fields[i].nvmlReturn = ask(from, &value, "nvmlDeviceGetFieldValues(%s)", arguments);
        fields[i].value = number(value);
        fields[i].valueType = fields[i].value >> 32 ? 3 : 1;  // unsigned long long, unsigned int
        if (count > 1 && value && get(from, "unfilled")) fields[i].valueType = 0;
    }
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(device from, device to, int caps, u32 *out) {
    const node *value;
    u32 peer = 0;
    while (item(get(document, "devices"), peer) != to) peer++;
    TRY(ask(from, &value, "nvmlDeviceGetP2PStatus(%u,%d)", peer, caps));
    *out = (u32)number(value);
    return SUCCESS;
}

// ---- fabric: three generations of one struct --------------------------------------------------

typedef struct {
    unsigned char uuid[16];
    int status;
    u32 cliqueId;
    unsigned char state, padding[3];
} fabric_t;
typedef struct { u32 version; fabric_t info; u32 healthMask; } fabric_v2_t;
typedef struct {
    u32 version;
    fabric_t info;
    u32 healthMask;
    unsigned char healthSummary;
} fabric_v3_t;

static void fill_fabric(const node *value, fabric_t *out) {
    const node *uuid = get(value, "clusterUuid");
    for (u32 i = 0; uuid && uuid->text && i < 16 && strlen(uuid->text) == 32; i++)
        sscanf(uuid->text + i * 2, "%2hhx", &out->uuid[i]);
    out->status = (int)number(get(value, "status"));
    out->cliqueId = (u32)number(get(value, "cliqueId"));
    out->state = (unsigned char)number(get(value, "state"));
    memset(out->padding, 0xEE, sizeof out->padding);  // what a driver leaves there is its affair
}

int nvmlDeviceGetGpuFabricInfo(device from, fabric_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetGpuFabricInfo"));
    fill_fabric(value, out);
    return SUCCESS;
}

// The first form, without a version; what the second calls reserved it calls used.
typedef struct { u64 total, free, used; } memory_v1_t;

int nvmlDeviceGetMemoryInfo(device from, memory_v1_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetMemoryInfo"));
    *out = (memory_v1_t){number(get(value, "total")), number(get(value, "free")),
                         number(get(value, "used"))};
    return SUCCESS;
}

#ifndef OLD_LIBRARY
SCALAR(u64, CurrentClocksEventReasons)

typedef struct { u32 version; u64 total, reserved, free, used; } memory_t;

int nvmlDeviceGetMemoryInfo_v2(device from, memory_t *out) {
    const node *value;
    if (out->version != VERSION(memory_t, 2)) return VERSION_MISMATCH;
    TRY(ask(from, &value, "nvmlDeviceGetMemoryInfo_v2"));
    *out = (memory_t){out->version, number(get(value, "total")), number(get(value, "reserved")),
                      number(get(value, "free")), number(get(value, "used"))};
    return SUCCESS;
}

// The document says which version its driver speaks.
int nvmlDeviceGetGpuFabricInfoV(device from, fabric_v3_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetGpuFabricInfoV"));
    bool third = number(get(value, "version")) >= 3;
    u32 known = third ? VERSION(fabric_v3_t, 3) : VERSION(fabric_v2_t, 2);
    if (out->version != known && out->version != VERSION(fabric_v2_t, 2)) return VERSION_MISMATCH;
    fill_fabric(value, &out->info);
    out->healthMask = (u32)number(get(value, "healthMask"));
    if (out->version == VERSION(fabric_v3_t, 3))
        out->healthSummary = (unsigned char)number(get(value, "healthSummary"));
    return SUCCESS;
}

typedef struct { u32 version; int marginTemperature; } margin_t;

int nvmlDeviceGetMarginTemperature(device from, margin_t *out) {
    const node *value;
    if (out->version != VERSION(margin_t, 1)) return VERSION_MISMATCH;
    TRY(ask(from, &value, "nvmlDeviceGetMarginTemperature"));
    out->marginTemperature = (int)number(value);
    return SUCCESS;
}

#define VERSIONED(name, function)                                             \
    typedef struct { u32 version, value; } name##_t;                          \
    int nvmlDeviceGet##function(device from, name##_t *out) {                 \
        const node *value;                                                    \
        if (out->version != VERSION(name##_t, 1)) return VERSION_MISMATCH;    \
        TRY(ask(from, &value, "nvmlDeviceGet" #function));                    \
        out->value = (u32)number(value);                                      \
        return SUCCESS;                                                       \
    }

VERSIONED(unrepairable, UnrepairableMemoryFlag_v1)

typedef struct { u32 version, channel, tpc; } repair_t;

int nvmlDeviceGetRepairStatus(device from, repair_t *out) {
    const node *value;
    if (out->version != VERSION(repair_t, 1)) return VERSION_MISMATCH;
    TRY(ask(from, &value, "nvmlDeviceGetRepairStatus"));
    out->channel = (u32)number(item(value, 0));
    out->tpc = (u32)number(item(value, 1));
    return SUCCESS;
}

typedef struct { u32 isC2cEnabled; } c2c_t;

int nvmlDeviceGetC2cModeInfoV(device from, c2c_t *out) {
    const node *value;
    TRY(ask(from, &value, "nvmlDeviceGetC2cModeInfoV"));
    out->isC2cEnabled = (u32)number(get(value, "isC2cEnabled"));
    return SUCCESS;
}

typedef struct { u32 version, environment, ccFeature, devToolsMode, multiGpuMode; } settings_t;

int nvmlSystemGetConfComputeSettings(settings_t *out) {
    const node *value;
    if (out->version != VERSION(settings_t, 1)) return VERSION_MISMATCH;
    TRY(ask(NULL, &value, "nvmlSystemGetConfComputeSettings"));
    out->environment = (u32)number(get(value, "environment"));
    out->ccFeature = (u32)number(get(value, "ccFeature"));
    out->devToolsMode = (u32)number(get(value, "devToolsMode"));
    out->multiGpuMode = (u32)number(get(value, "multiGpuMode"));
    return SUCCESS;
}

typedef struct { u32 environment, ccFeature, devToolsMode; } state_t;

int nvmlSystemGetConfComputeState(state_t *out) {
    const node *value;
    TRY(ask(NULL, &value, "nvmlSystemGetConfComputeState"));
    out->environment = (u32)number(get(value, "environment"));
    out->ccFeature = (u32)number(get(value, "ccFeature"));
    out->devToolsMode = (u32)number(get(value, "devToolsMode"));
    return SUCCESS;
}

typedef struct { u32 version; u64 counters[11]; u32 bThresholdExceeded; } sram_t;

int nvmlDeviceGetSramEccErrorStatus(device from, sram_t *out) {
    static const char *names[] = {
        "aggregateUncParity",     "aggregateUncSecDed",   "aggregateCor",
        "volatileUncParity",      "volatileUncSecDed",    "volatileCor",
        "aggregateUncBucketL2",   "aggregateUncBucketSm", "aggregateUncBucketPcie",
        "aggregateUncBucketMcu",  "aggregateUncBucketOther",
    };
    const node *value;
    if (out->version != VERSION(sram_t, 1)) return VERSION_MISMATCH;
    TRY(ask(from, &value, "nvmlDeviceGetSramEccErrorStatus"));
    for (int i = 0; i < 11; i++) out->counters[i] = number(get(value, names[i]));
    out->bThresholdExceeded = (u32)number(get(value, "bThresholdExceeded"));
    return SUCCESS;
}
#endif
