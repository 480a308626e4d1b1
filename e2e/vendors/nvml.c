/* An NVML without hardware, for NVIDIA's DRA driver and device plugin: it reports two A100 with 40 GB.

   It defines only the functions that they call. A call to any other function ends the caller with an error that names
   the function. With MIG=1 in the environment, the second GPU is in MIG mode and has two GPU
   instances 1g.5gb, each with one compute instance. The header is NVIDIA's, from the go-nvml module. */

#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 2
#define PARTS 2
#define MIB (1024ULL * 1024ULL)

enum { FIRST_INSTANCE = 7, INSTANCE_PROFILE = 19, COMPUTE_PROFILE = 0 };

/* What handles point to: a GPU, or a MIG device, which is also the handle of its GPU instance and compute instance. */
static struct nvmlDevice_st {
    unsigned int index;
    int is_mig;
    const char *uuid;
    const char *bus;
} gpus[GPUS] = {
    {0, 0, "GPU-00000000-0000-4000-8000-000000000000", "00000000:07:00.0"},
    {1, 0, "GPU-00000000-0000-4000-8000-000000000001", "00000000:0F:00.0"},
}, parts[PARTS] = {
    {0, 1, "MIG-00000000-0000-4000-8000-000000000010", ""},
    {1, 1, "MIG-00000000-0000-4000-8000-000000000011", ""},
};

static int mig(nvmlDevice_t device) {
    const char *told = getenv("MIG");
    return told && !strcmp(told, "1") && device.handle == &gpus[1];
}

static nvmlReturn_t copy(char *into, unsigned int length, const char *text) {
    return snprintf(into, length, "%s", text) < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static char text[32];
    snprintf(text, sizeof text, "NVML error %d", result);
    return text;
}

nvmlReturn_t nvmlInit_v2(void) { return NVML_SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return copy(version, length, "550.163.01");
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    *version = 12040;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = GPUS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index >= GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    device->handle = &gpus[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    for (int i = 0; i < GPUS; i++)
        if (!strcmp(uuid, gpus[i].uuid)) {
            device->handle = &gpus[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    *index = device.handle->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    *minor = device.handle->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    return copy(uuid, length, device.handle->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    return copy(name, length, "NVIDIA A100-SXM4-40GB");
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type) {
    *type = NVML_BRAND_NVIDIA;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
    *architecture = NVML_DEVICE_ARCH_AMPERE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    *major = 8;
    *minor = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    memory->total = memory->free = (device.handle->is_mig ? 4864 : 40960) * MIB;
    memory->used = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    *pci = (nvmlPciInfo_t){.pciDeviceId = 0x20b010de};
    copy(pci->busIdLegacy, sizeof pci->busIdLegacy, device.handle->bus + 4);
    return copy(pci->busId, sizeof pci->busId, device.handle->bus);
}

/* MIG */

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    *is_mig = device.handle->is_mig;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t part, nvmlDevice_t *device) {
    if (!part.handle->is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    device->handle = &gpus[1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t part, nvmlDeviceAttributes_t *attributes) {
    if (!part.handle->is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = 14,
        .sharedCopyEngineCount = 1,
        .gpuInstanceSliceCount = 1,
        .computeInstanceSliceCount = 1,
        .memorySizeMB = 4864,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    *current = *pending = mig(device) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    *count = mig(device) ? 7 : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *part) {
    if (!mig(device) || index >= PARTS)
        return NVML_ERROR_NOT_FOUND;
    part->handle = &parts[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(
    nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *info) {
    if (profile != NVML_GPU_INSTANCE_PROFILE_1_SLICE)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = INSTANCE_PROFILE,
        .sliceCount = 1,
        .instanceCount = 7,
        .multiprocessorCount = 14,
        .copyEngineCount = 1,
        .memorySizeMB = 4864,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, unsigned int profile, nvmlGpuInstancePlacement_t *placements, unsigned int *count) {
    for (unsigned int i = 0; placements && i < 7; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){.start = i, .size = 1};
    *count = 7;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t part, unsigned int *id) {
    *id = FIRST_INSTANCE + part.handle->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t part, unsigned int *id) {
    *id = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    if (!mig(device) || id < FIRST_INSTANCE || id >= FIRST_INSTANCE + PARTS)
        return NVML_ERROR_NOT_FOUND;
    instance->handle = (struct nvmlGpuInstance_st *)&parts[id - FIRST_INSTANCE];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    unsigned int index = ((struct nvmlDevice_st *)instance.handle)->index;
    *info = (nvmlGpuInstanceInfo_t){{&gpus[1]}, FIRST_INSTANCE + index, INSTANCE_PROFILE, {index, 1}};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine, nvmlComputeInstanceProfileInfo_t *info) {
    if (profile != NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE || engine != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = COMPUTE_PROFILE, .sliceCount = 1, .instanceCount = 1, .multiprocessorCount = 14};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(
    nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *compute) {
    if (id)
        return NVML_ERROR_NOT_FOUND;
    compute->handle = (struct nvmlComputeInstance_st *)instance.handle;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    *info = (nvmlComputeInstanceInfo_t){
        .device.handle = (struct nvmlDevice_st *)compute.handle,
        .gpuInstance.handle = (struct nvmlGpuInstance_st *)compute.handle,
        .profileId = COMPUTE_PROFILE,
        .placement.size = 1,
    };
    return NVML_SUCCESS;
}
