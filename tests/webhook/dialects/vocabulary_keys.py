"""Every key in the documentation or sources of the systems, and its outcome. A dialect is the table of one system's keys.

A line has a dialect, a place on the pod, an outcome, and all keys that have the three. A key of several systems is listed for each system.
The list was not made from the tables of the dialects; `test_vocabularies.py` compares the tables with it.
"""

from typing import NamedTuple


class Key(NamedTuple):
    dialect: str
    place: str
    outcome: str
    name: str


_LINES = """
nvidia resource translated nvidia.com/gpu nvidia.com/mig-1g.5gb nvidia.com/mig-1g.5gb.me nvidia.com/mig-7g.80gb nvidia.com/mig-1g.24gb-me
nvidia resource approximated nvidia.com/gpu.shared
nvidia resource left nvidia.com/mig-1g.5gb.shared nvidia.com/mig-1g.5gb.me.shared
nvidia env left NVIDIA_VISIBLE_DEVICES NVIDIA_IMEX_CHANNELS NVIDIA_MIG_CONFIG_DEVICES NVIDIA_DRIVER_CAPABILITIES
nvidia nodeSelector left nvidia.com/gpu.present nvidia.com/gpu.product nvidia.com/gpu.memory nvidia.com/gpu.count nvidia.com/gpu.replicas
nvidia nodeSelector left nvidia.com/gpu.sharing-strategy nvidia.com/gpu.family nvidia.com/gpu.machine nvidia.com/gpu.clique nvidia.com/gpu.mode
nvidia nodeSelector left nvidia.com/mig.capable nvidia.com/mig.strategy nvidia.com/mig.config nvidia.com/mps.capable nvidia.com/device-plugin.config
nvidia nodeSelector left cloud.google.com/gke-accelerator cloud.google.com/gke-gpu-sharing-strategy cloud.google.com/gke-max-shared-clients-per-gpu
nvidia nodeSelector translated cloud.google.com/gke-gpu-partition-size
hami resource translated nvidia.com/gpu nvidia.com/gpumem nvidia.com/gpumem-percentage nvidia.com/gpucores
hami resource approximated nvidia.com/priority
hami annotation translated nvidia.com/use-gputype nvidia.com/nouse-gputype nvidia.com/use-gpuuuid nvidia.com/nouse-gpuuuid nvidia.com/vgpu-mode
hami annotation approximated nvidia.com/numa-bind
hami annotation approximated hami.io/node-scheduler-policy hami.io/gpu-scheduler-policy hami.io/device-scoring-weights
hami label left hami.io/webhook
hami env left CUDA_DISABLE_CONTROL GPU_CORE_UTILIZATION_POLICY
hami annotation left hami.io/vgpu-node hami.io/vgpu-time hami.io/bind-time hami.io/bind-phase hami.io/vgpu-mig-allocations
hami annotation left hami.io/vgpu-devices-to-allocate hami.io/vgpu-devices-allocated hami.io/dcu-devices-allocated hami.io/metax-sgpu-devices-to-allocate
undriven resource left huawei.com/ascend-1980 huawei.com/ascend-snt9b cambricon.com/mlunum cambricon.com/mlumem
undriven resource left cambricon.com/vmlu cambricon.com/mlu.smlu.vmemory cambricon.com/mlu.smlu.vcore cambricon.com/mlu370.smlu.vmemory
undriven annotation left cambricon.com/use-mlutype cambricon.com/nouse-mlutype cambricon.com/use-gpuuuid cambricon.com/nouse-gpuuuid
undriven resource left hygon.com/dcunum hygon.com/dcumem hygon.com/dcucores
undriven annotation left hygon.com/use-dcutype hygon.com/nouse-dcutype hygon.com/use-gpuuuid hygon.com/nouse-gpuuuid
undriven resource left iluvatar.ai/MR-V100-vgpu iluvatar.ai/BI-V150.vCore iluvatar.ai/BI-V100.vMem iluvatar.ai/MR-V50-vgpu
undriven resource left mthreads.com/vgpu mthreads.com/sgpu-memory mthreads.com/sgpu-core
undriven annotation left mthreads.ai/use-gpuuuid mthreads.ai/nouse-gpuuuid baidu.com/use-gpuuuid baidu.com/nouse-gpuuuid hami.io/use-xpu-uuid
undriven resource left kunlunxin.com/xpu kunlunxin.com/vxpu kunlunxin.com/vxpu-memory
undriven resource left metax-tech.com/gpu metax-tech.com/sgpu metax-tech.com/vcore metax-tech.com/vmemory
undriven annotation left metax-tech.com/sgpu-qos-policy metax-tech.com/sgpu-app-class metax-tech.com/sgpu-topology-aware metax-tech.com/use-gpuuuid
undriven resource left enflame.com/gcu enflame.com/drs-gcu enflame.com/gcu-memory enflame.com/gcu-core enflame.com/vgcu enflame.com/vgcu-percentage
undriven annotation left enflame.com/use-gpuuuid enflame.com/nouse-gpuuuid
ascend resource translated huawei.com/Ascend910A huawei.com/Ascend910B2 huawei.com/Ascend910B3 huawei.com/Ascend910B4 huawei.com/Ascend910B4-1
ascend resource translated huawei.com/Ascend910C huawei.com/Ascend310P huawei.com/Ascend910B3-core huawei.com/Ascend910
ascend resource approximated huawei.com/Ascend310P-memory huawei.com/Ascend910B4-1-memory
ascend resource left huawei.com/npu
ascend annotation translated huawei.com/vnpu-mode
ascend annotation left hami.io/use-Ascend310P-uuid hami.io/no-use-Ascend910B4-1-uuid
undriven resource left vastaitech.com/va birentech.com/gpu dcu.com/gpu
undriven annotation left vastaitech.com/use-gpuuuid birentech.com/nouse-gpuuuid vastaitech.com/use-va birentech.com/nouse-biren
undriven resource left hygon.com/dcu-share-4c-16g hygon.com/dcu-mig-4g-31gb dsa.intel.com/wq-user-shared fpga.intel.com/arria10.dcp1.0
rebellions resource translated rebellions.ai/ATOM rebellions.ai/REBEL rebellions.ai/npu
undriven resource left devices.kubevirt.io/kvm devices.kubevirt.io/vhost-net furiosa.ai/rngd tenstorrent.com/blackhole ibm.com/spyre_pf ibm.com/spyre_pf_tier0
undriven resource left squat.ai/dri devic.es/tun
undriven resource left beta.hpe.com/cxi nvidia.com/vgpu-number nvidia.com/vgpu-cores nvidia.com/vgpu-memory
undriven resource left iaa.intel.com/wq-user-dedicated dlb.intel.com/pf dlb.intel.com/vf npu.intel.com/accel sgx.intel.com/epc sgx.intel.com/enclave
intel resource left gpu.intel.com/dxg
nvidia nodeSelector left cloud.google.com/gke-gpu-driver-version cloud.google.com/gke-accelerator-count
google nodeSelector left cloud.google.com/gke-tpu-slice cloud.google.com/gke-nodepool cloud.google.com/gke-spot
llmd resource approximated dra.llm-d.io/gpu-nic-pair
llmd annotation translated dra.llm-d.io/allow-cross-numa
llmd annotation left dra.llm-d.io/mutated
tensorfusion annotation left tensor-fusion.ai/replicas tensor-fusion.ai/client-profile tensor-fusion.ai/generate-workload
google annotation left cloud.google.com/gke-tpu-slice-topology
hygon resource translated hygon.com/dcu hygon.cn/hcu
intel resource approximated qat.intel.com/cy qat.intel.com/dc qat.intel.com/sym qat.intel.com/asym qat.intel.com/sym-dc qat.intel.com/asym-dc
intel resource left qat.intel.com/generic intel.com/gpu intel.com/gaudi intel.com/qat
koordinator resource translated koordinator.sh/gpu koordinator.sh/gpu-core koordinator.sh/gpu-memory koordinator.sh/gpu-memory-ratio
koordinator resource translated koordinator.sh/gpu.shared koordinator.sh/rdma nvidia.com/gpu
koordinator resource left koordinator.sh/fpga amd.com/gpu dcu.com/gpu metax-tech.com/sgpu huawei.com/npu-core huawei.com/npu-cpu huawei.com/npu-dvpp
koordinator annotation approximated scheduling.koordinator.sh/device-joint-allocate scheduling.koordinator.sh/device-allocate-hint
koordinator annotation approximated scheduling.koordinator.sh/gpu-partition-spec
koordinator annotation left scheduling.koordinator.sh/device-allocated
koordinator annotation left scheduling.koordinator.sh/gpu-minors scheduling.koordinator.sh/bind-timestamp gang.scheduling.koordinator.sh/name
koordinator label left quota.scheduling.koordinator.sh/name pod-group.scheduling.sigs.k8s.io
koordinator label translated koordinator.sh/gpu-isolation-provider
koordinator nodeSelector left node.koordinator.sh/gpu-vendor node.koordinator.sh/gpu-model node.koordinator.sh/gpu-driver-version
volcano resource translated volcano.sh/vgpu-number volcano.sh/vgpu-memory volcano.sh/vgpu-memory-percentage volcano.sh/vgpu-cores
volcano annotation translated volcano.sh/vgpu-mode volcano.sh/vgpu-use-gpuuuid volcano.sh/vgpu-nouse-gpuuuid nvidia.com/use-gputype nvidia.com/nouse-gputype
volcano annotation approximated volcano.sh/vgpu-podgroup-policy
volcano annotation left volcano.sh/vgpu-ids-new volcano.sh/devices-to-allocate volcano.sh/vgpu-node volcano.sh/vgpu-time volcano.sh/bind-time
volcano annotation left volcano.sh/bind-phase volcano.sh/predicate-time scheduling.k8s.io/group-name scheduling.volcano.sh/queue-name
volcano label left volcano.sh/queue-name
volcanoshare resource approximated volcano.sh/gpu-memory
volcanoshare resource translated volcano.sh/gpu-number
volcanoshare annotation left volcano.sh/gpu-index
tensorfusion label left tensor-fusion.ai/enabled
tensorfusion annotation left tensor-fusion.ai/tflops-request tensor-fusion.ai/tflops-limit tensor-fusion.ai/vram-request tensor-fusion.ai/vram-limit
tensorfusion annotation left tensor-fusion.ai/compute-percent-request tensor-fusion.ai/compute-percent-limit tensor-fusion.ai/gpu-count
tensorfusion annotation left tensor-fusion.ai/gpu-indices tensor-fusion.ai/gpu-model tensor-fusion.ai/vendor tensor-fusion.ai/gpupool tensor-fusion.ai/qos
tensorfusion annotation left tensor-fusion.ai/isolation tensor-fusion.ai/partition-id tensor-fusion.ai/dedicated-gpu tensor-fusion.ai/is-local-gpu
tensorfusion annotation left tensor-fusion.ai/inject-container tensor-fusion.ai/container-gpu-count tensor-fusion.ai/workload-profile
tensorfusion annotation left tensor-fusion.ai/autoscale tensor-fusion.ai/gang-enabled tensor-fusion.ai/gpu-ids tensor-fusion.ai/worker-pod-template
tensorfusion resource left tensor-fusion.ai/index_0 tensor-fusion.ai/index_f
kai annotation left gpu-fraction gpu-memory gpu-fraction-num-devices gpu-fraction-container-name mps pod-group-name received-resource-type
kai annotation left nvidia.com/mig-7g.40gb run.ai/reserve_for_gpu_index runai-mig-device
kai annotation left kai.scheduler/skip-podgrouper runai/shared-gpu-configmap kai.scheduler/gpu-compute-sharing-mode kai.scheduler/preemption-delay
kai annotation left nvidia.com/container.main.gpu-memory.request nvidia.com/container.main.gpu-memory.limit
kai label left kai.scheduler/queue kai.scheduler/node-pool kai.scheduler/subgroup-name runai-gpu-group
kai env left RUNAI_GPU_MEMORY_LIMIT
aliyun resource approximated aliyun.com/gpu-mem
aliyun resource translated aliyun.com/gpu-core.percentage aliyun.com/gpu
aliyun resource left aliyun.com/gpu-count alibabacloud.com/gpu-core.percentage alibabacloud.com/gpu-memory.percentage
aliyun annotation left scheduler.framework.gpushare.allocation ALIYUN_COM_GPU_MEM_IDX ALIYUN_COM_GPU_MEM_POD ALIYUN_COM_GPU_MEM_ASSUME_TIME
aliyun label left gpushare.alibabacloud.com/core-percentage
aliyun env left ALIYUN_COM_GPU_MEM_CONTAINER ALIYUN_COM_GPU_MEM_DEV ALIYUN_COM_GPU_MEM_IDX
aliyun nodeSelector left ack.node.gpu.schedule ack.node.gpu.placement
amazon resource left k8s.amazonaws.com/vgpu
amazon resource translated aws.amazon.com/neuron aws.amazon.com/neurondevice
amazon resource approximated aws.amazon.com/neuroncore
amazon annotation left aws.amazon.com/use-neuron-uuid aws.amazon.com/nouse-neuron-uuid
amazon nodeSelector left k8s.amazonaws.com/accelerator
cloud resource left nvidia.com/gpu-10gb tencent.com/vcuda-core tencent.com/vcuda-memory tke.cloud.tencent.com/qgpu-core tke.cloud.tencent.com/qgpu-memory
cloud resource left tke.cloud.tencent.com/qgpu-core-greedy elasticgpu.com/gpu-core elasticgpu.com/gpu-memory
cloud resource left vke.volcengine.com/mgpu-core vke.volcengine.com/mgpu-memory baidu.com/a10_24g_cgpu baidu.com/a10_24g_cgpu_core
cloud resource left baidu.com/a10_24g_cgpu_memory baidu.com/a10_24g_cgpu_memory_percent
cloud annotation left tencent.com/vcuda-core-limit tke.cloud.tencent.com/app-class vke.volcengine.com/container-multiple-gpu vke.volcengine.com/assumed
cloud nodeSelector left nos.nebuly.com/gpu-partitioning
amd resource translated amd.com/gpu amd.com/spx_nps1 amd.com/cpx_nps1 amd.com/cpx_nps4
amd resource left amd.com/gpumem amd.com/gpucores
amd annotation left amd.com/use-gputype amd.com/nouse-gputype amd.com/use-gpu-uuid amd.com/nouse-gpu-uuid
amd nodeSelector left amd.com/gpu.vram amd.com/gpu.cu-count amd.com/gpu.device-id amd.com/gpu.family amd.com/gpu.product-name
amd nodeSelector left amd.com/compute-partitioning-supported amd.com/memory-partitioning-supported amd.com/compute-memory-partition
intel resource translated gpu.intel.com/i915 gpu.intel.com/xe habana.ai/gaudi
intel resource left gpu.intel.com/monitoring gpu.intel.com/i915_monitoring gpu.intel.com/xe_monitoring gpu.intel.com/millicores
intel resource left gpu.intel.com/memory.max gpu.intel.com/tiles
google resource translated google.com/tpu
google resource left cloud-tpus.google.com/v2 cloud-tpus.google.com/v3
google nodeSelector left cloud.google.com/gke-tpu-accelerator cloud.google.com/gke-tpu-topology
nics resource approximated rdma/hca_shared_devices_a rdma/rdma_shared_device_a
nics resource translated intel.com/sriov_pool openshift.io/mlxnics nvidia.com/hostdev nvidia.com/sriovlegacy mellanox.com/cx5_pool
nics resource approximated vpc.amazonaws.com/efa
nics annotation left k8s.v1.cni.cncf.io/networks
"""


def _read() -> tuple[Key, ...]:
    keys = []
    for line in _LINES.split("\n"):
        if line:
            dialect, place, outcome, *names = line.split(" ")
            keys += [Key(dialect, place, outcome, name) for name in names]
    return tuple(keys)


KEYS = _read()
