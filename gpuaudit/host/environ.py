# SPDX-License-Identifier: Apache-2.0
"""Which variables of an environment are evidence. The others may be secrets and are never kept."""

PREFIXES = (
    *("BLIS_", "CUBLAS_", "CUDA_", "CUDNN_", "CUPTI_", "FI_", "GLOO_", "GOMP_", "IBV_", "I_MPI_"),
    *("KINETO_", "KMP_", "MKL_", "MLX4_", "MLX5_", "MPICH_GPU_", "NCCL_", "NSYS_", "NVIDIA_"),
    *("NVSHMEM_", "NVTX_", "OFI_NCCL_", "OMPI_MCA_", "OMP_", "OPENBLAS_", "PMIX_MCA_", "PRTE_MCA_"),
    *("PYTORCH_", "RDMAV_", "ROCR_", "SHARP_", "TORCH_", "UCC_", "UCX_"),
)
NAMES = frozenset(
    {
        *("COMPUTE_PROFILE", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "LOCAL_WORLD_SIZE"),
        *("LD_AUDIT", "LD_BIND_NOW", "LD_DEBUG", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_PROFILE"),
        *("MALLOC_ARENA_MAX", "MALLOC_CHECK_", "MALLOC_PERTURB_", "NUMEXPR_NUM_THREADS"),
        *("OMPI_COMM_WORLD_LOCAL_SIZE", "PYTHONMALLOC", "VECLIB_MAXIMUM_THREADS", "XLA_FLAGS"),
        *("FLUX_JOB_ID", "HOME", "LSB_JOBID", "PBS_JOBID", "SLURM_CPUS_PER_TASK", "SLURM_JOB_ID"),
        *("SLURM_NTASKS_PER_NODE", "SLURM_SCRIPT_CONTEXT", "TMPDIR"),
    }
)
CLUES = (*PREFIXES, *sorted(NAMES - {"HOME", "TMPDIR"}))
"""What stands in a text that sets a variable worth looking at."""

SECRETS = (
    *("TOKEN", "SECRET", "PASS", "CRED", "API_KEY", "APIKEY", "PRIVATE", "ACCESS_KEY", "AUTH"),
    *("ACCESSKEY", "COOKIE", "URL", "LICENSE"),
)


def matters(name: str) -> bool:
    """True for a variable that an audit may judge; NVIDIA_API_KEY is none."""
    return (name in NAMES or name.startswith(PREFIXES)) and not any(
        word in name.upper() for word in SECRETS
    )


def is_environ(path: str) -> bool:
    """True for the environment of a process (proc_pid_environ(5))."""
    return path.startswith("/proc/") and path.endswith("/environ")


def kept(data: bytes) -> bytes:
    """The environment of a process with nothing in it but variables that matter."""
    words = (word for word in data.split(b"\0") if b"=" in word)
    named = ((word.partition(b"=")[0].decode("utf-8", "replace"), word) for word in words)
    return b"".join(word + b"\0" for name, word in named if matters(name))
