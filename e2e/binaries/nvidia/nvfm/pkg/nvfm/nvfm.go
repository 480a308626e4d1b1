// Package nvfm takes the place of NVIDIA's binding of the Fabric Manager, a module that the Go proxy does not serve.
// It declares what NVIDIA's driver uses of it, and every call fails, as on a node without NVSwitch.
package nvfm

// Return is the result of a call.
type Return int

// SUCCESS is the result of no call here.
const SUCCESS Return = 0

const missing Return = 1

func (Return) String() string { return "there is no Fabric Manager here" }

type (
	// Interface is the library.
	Interface interface {
		Init() Return
		Shutdown() Return
		Connect(options ...ConnectOption) (Handle, Return)
	}
	// Handle is a connection.
	Handle interface {
		Disconnect() Return
		GetSupportedFabricPartitions() (FabricPartitionList, Return)
		ActivateFabricPartition(id FabricPartitionId) Return
		DeactivateFabricPartition(id FabricPartitionId) Return
	}
	// LibraryOption and ConnectOption are ignored.
	LibraryOption struct{}
	ConnectOption struct{}
	// FabricPartitionId names a partition.
	FabricPartitionId uint32
	// FabricPartitionGpuInfo is a GPU of a partition.
	FabricPartitionGpuInfo struct {
		PhysicalId          uint32
		Uuid                [80]int8
		PciBusId            [32]int8
		NumNvLinksAvailable uint32
		MaxNumNvLinks       uint32
		NvlinkLineRateMBps  uint32
	}
	// FabricPartitionInfo is a partition.
	FabricPartitionInfo struct {
		PartitionId FabricPartitionId
		IsActive    uint32
		NumGpus     uint32
		GpuInfo     [8]FabricPartitionGpuInfo
	}
	// FabricPartitionList is the list of partitions.
	FabricPartitionList struct {
		NumPartitions uint32
		PartitionInfo [8]FabricPartitionInfo
	}
)

func WithLibraryPath(string) LibraryOption { return LibraryOption{} }
func WithUnixSocket(string) ConnectOption  { return ConnectOption{} }
func WithAddress(string) ConnectOption     { return ConnectOption{} }
func WithTimeoutMs(uint32) ConnectOption   { return ConnectOption{} }

func New(...LibraryOption) Interface { return library{} }

type library struct{}

func (library) Init() Return                              { return missing }
func (library) Shutdown() Return                          { return missing }
func (library) Connect(...ConnectOption) (Handle, Return) { return nil, missing }
