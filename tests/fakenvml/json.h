// SPDX-License-Identifier: Apache-2.0
// A JSON reader for the fake NVML: it changes the text it reads and frees nothing.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;

// A tree of nodes; numbers stay text until somebody asks for them.
typedef enum { J_NULL, J_TRUE, J_FALSE, J_NUMBER, J_STRING, J_LIST, J_OBJECT } kind_t;

typedef struct node {
    kind_t kind;
    const char *key;   // in an object
    const char *text;  // number or string
    struct node *first, *next;
    bool asked;
} node;

static char *at;  // where the parser stands
static bool broken;

static node *parse_value(void);

static void blank(void) { at += strspn(at, " \t\r\n"); }

static bool eat(char c) {
    blank();
    if (*at != c) return false;
    at++;
    return true;
}

static void expect(char c) { broken |= !eat(c); }

static char *put_utf8(char *out, u32 c) {
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)((more ? 0xFF00 >> (more + 1) : 0) | c >> 6 * more);
    while (more--) *out++ = (char)(0x80 | (c >> 6 * more & 0x3F));
    return out;
}

static u32 hex4(void) {
    u32 value = 0;
    for (int i = 0; i < 4; i++, at++) {
        const char *digits = "0123456789abcdef", *found;
        found = *at ? strchr(digits, *at | 0x20) : NULL;
        broken |= !found;
        if (!found) return 0;
        value = value << 4 | (u32)(found - digits);
    }
    return value;
}

static u32 escaped_code_point(void) {
    u32 c = hex4();
    if (c >= 0xD800 && c < 0xDC00 && at[0] == '\\' && at[1] == 'u') {
        at += 2;
        c = 0x10000 + ((c - 0xD800) << 10) + (hex4() - 0xDC00);
    }
    return c;
}

// Decoded in place: no escape is shorter than what it stands for.
static const char *parse_string(void) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    expect('"');
    char *text = at, *out = text;
    while (!broken && *at != '"') {
        const char *found = *at == '\\' && at[1] ? strchr(letters, at[1]) : NULL;
        if (found) {
            *out++ = meant[found - letters];
            at += 2;
        } else if (*at == '\\' && at[1] == 'u') {
            at += 2;
            out = put_utf8(out, escaped_code_point());
        } else {
            broken = *at == '\\' || (unsigned char)*at < 0x20;
            *out++ = *at++;
        }
    }
    at += !broken;
    *out = 0;
    return text;
}

static void parse_members(node *parent, char close) {
    at++;
    if (eat(close)) return;
    for (node **end = &parent->first; !broken; end = &(*end)->next) {
        blank();
        const char *key = parent->kind == J_OBJECT ? parse_string() : NULL;
        if (key) expect(':');
        if (broken) return;
        *end = parse_value();
        (*end)->key = key;
        if (eat(close)) return;
        expect(',');
    }
}

static bool word(const char *name) {
    size_t length = strlen(name);
    if (strncmp(at, name, length)) return false;
    at += length;
    return true;
}

static node *parse_value(void) {
    node *value = calloc(1, sizeof *value);
    blank();
    if (*at == '{') {
        value->kind = J_OBJECT;
        parse_members(value, '}');
    } else if (*at == '[') {
        value->kind = J_LIST;
        parse_members(value, ']');
    } else if (*at == '"') {
        value->kind = J_STRING;
        value->text = parse_string();
    } else if (word("true")) {
        value->kind = J_TRUE;
    } else if (word("false")) {
        value->kind = J_FALSE;
    } else if (!word("null")) {
        size_t length = strspn(at, "+-.0123456789eE");
        broken |= !length;
        value->kind = J_NUMBER;
        value->text = at;
        at += length;
    }
    return value;
}

static const node *get(const node *object, const char *key) {
    if (!object || object->kind != J_OBJECT) return NULL;
    for (const node *one = object->first; one; one = one->next)
        if (!strcmp(one->key, key)) return one;
    return NULL;
}

static const node *item(const node *list, u32 index) {
    const node *one = list && list->kind == J_LIST ? list->first : NULL;
    while (one && index--) one = one->next;
    return one;
}

static u64 number(const node *value) {
    if (!value) return 0;
    if (value->kind == J_TRUE) return 1;
    if (value->kind != J_NUMBER) return 0;
    if (value->text[0] == '-') return (u64)strtoll(value->text, NULL, 10);
    return strtoull(value->text, NULL, 10);
}
