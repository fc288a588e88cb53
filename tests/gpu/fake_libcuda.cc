// A libcuda.so.1 whose device is the CPU: it runs the kernels' own source. Streams are threads, so
// copies and kernels complete after the calls that submitted them, as on a device. It fails on request.
//
// The file named by FAKE_CUDA_FAULT holds an order and is read at every call. The call that carries out
// an order deletes the file, so that it happens in only one process. The file contains "N CALL FAULT". N
// numbers the order (a new number restarts the count), CALL is the name of a function, followed by ":K"
// for its K-th call from then on, and FAULT is one of
//   error    the call fails, once
//   lost     the call fails, and so does every other in contexts created so far
//   memory   the call fails for lack of memory
//   hang     the call's stream hangs forever (calls without a stream fail as lost)
//   slow     the call's stream hangs for five seconds
//   wrong    the next kernel's output is corrupted (cuLaunchKernel only)
// Other variables, read once: FAKE_CUDA_VERSION, FAKE_CUDA_DEVICES. With PLANTED_FAULTS the kernels are
// those of build-planted.sh. The number in the file `planted` in the directory CUDA_FAULTS selects the
// fault at each launch.
#include "warpcrypt.cu"
#include "hash.cu"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default"))) int

namespace {

enum Status { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719, DEVICE_LOST = 999 };

struct Context {
  std::atomic<bool> lost{false};
};

// Executes work in order, on a separate thread.
class Stream {
 public:
  explicit Stream(Context* context) : context(context), thread([this] { work(); }) { thread.detach(); }
  void submit(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  void hang() {
    std::lock_guard<std::mutex> lock(mutex);
    hangs = true;
  }
  void finish() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return tasks.empty() && !busy; });
  }
  Context* const context;

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !tasks.empty() && !hangs; });
      auto task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool busy = false, hangs = false;
  std::thread thread;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  bool happened = true;
  Context* context = nullptr;
};

std::mutex global;  // guards everything below
std::mutex shim;    // the shim runs one kernel at a time
std::vector<Context*> contexts;
std::vector<Stream*> streams;
thread_local Context* current = nullptr;
// Whether the thread's latest call carried out the order `wrong`. `order` cannot be consulted later,
// because another thread that has read the same order may count its own call there in between.
thread_local bool spoils = false;

struct Order {
  std::string number, call, fault;
  long left = 0;
};
Order order;

// The fault ordered for this call of that function, if any.
std::string fault_of(const std::string& call) {
  const char* path = getenv("FAKE_CUDA_FAULT");
  FILE* file = path ? fopen(path, "r") : nullptr;
  if (!file) return "";
  char number[32] = "", target[64] = "", fault[32] = "";
  int found = fscanf(file, "%31s %63s %31s", number, target, fault);
  fclose(file);
  if (found != 3) return "";
  std::lock_guard<std::mutex> lock(global);
  if (order.number != number) {
    std::string name = target;
    size_t colon = name.find(':');
    order = {number, name.substr(0, colon), fault, colon == std::string::npos ? 1 : atol(name.c_str() + colon + 1)};
  }
  if (order.call != call || --order.left != 0) return "";
  if (unlink(path)) return order.left = -1, "";
  return order.fault;
}

// The initial status of every call. `stream` is the stream that the call uses, if any.
int begin(const char* call, Stream* stream = nullptr, bool needs_context = true) {
  std::string fault = fault_of(call);
  spoils = fault == "wrong";
  if (fault == "hang" && stream) {
    stream->hang();
    return SUCCESS;
  }
  if (fault == "slow" && stream) stream->submit([] { std::this_thread::sleep_for(std::chrono::seconds(5)); });
  if (fault == "lost" || fault == "hang") {
    std::lock_guard<std::mutex> lock(global);
    for (Context* context : contexts) context->lost = true;
  }
  if (fault == "memory") return OUT_OF_MEMORY;
  if (fault == "error") return LAUNCH_FAILED;
  if (needs_context && (!current || current->lost)) return DEVICE_LOST;
  return fault == "lost" || fault == "hang" ? DEVICE_LOST : SUCCESS;
}
#define BEGIN(...)                                              \
  if (int status = begin(__func__ __VA_OPT__(,) __VA_ARGS__); status) return status

template <class... Parameters>
class Entry {
 public:
  explicit Entry(void (*kernel)(Parameters...)) : kernel(kernel) {}
  std::function<void()> bind(void** values) const { return bind(values, std::index_sequence_for<Parameters...>()); }

 private:
  template <size_t... I>
  std::function<void()> bind(void** values, std::index_sequence<I...>) const {
    auto function = kernel;
    auto copies = std::make_tuple(*static_cast<Parameters*>(values[I])...);
    return [=] { function(std::get<I>(copies)...); };
  }
  void (*kernel)(Parameters...);
};
using Bind = std::function<std::function<void()>(void**)>;
template <class... Parameters>
Bind entry(void (*kernel)(Parameters...)) {
  return [entry = Entry<Parameters...>(kernel)](void** values) { return entry.bind(values); };
}
#define ENTRY(name) {#name, entry(name)}
#define SEAL_OPEN_ENTRIES(name)                                                                                      \
  ENTRY(seal_##name), ENTRY(open_##name), ENTRY(seal_##name##_wide), ENTRY(open_##name##_wide), ENTRY(check_##name), \
      ENTRY(seal_##name##_checked), ENTRY(open_##name##_checked)
// Memory of the device. A process has some 400 MB of it and uses little, so a page takes memory only once
// something else than the initial content or zeroes is written there.
class DeviceMemory {
 public:
  // Later the process may no longer be allowed to create files.
  void prepare() {
    std::lock_guard<std::mutex> lock(mutex);
    if (initial >= 0) return;
    initial = memfd_create("initial", MFD_CLOEXEC);
    std::string content(UNIT, 0x6b);
    if (initial < 0 || pwrite(initial, content.data(), UNIT, 0) != ssize_t(UNIT)) abort();
  }
  // Null without memory.
  void* allocate(size_t length) {
    std::lock_guard<std::mutex> lock(mutex);
    length = (length + UNIT - 1) / UNIT * UNIT;
    void* memory = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    for (size_t at = 0; at < length; at += UNIT) {
      if (!replace(static_cast<char*>(memory) + at, UNIT, 0, initial)) return munmap(memory, length), nullptr;
    }
    lengths[memory] = length;
    return memory;
  }
  void free(void* memory) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = lengths.find(memory);
    if (found == lengths.end()) return;
    munmap(memory, found->second);
    lengths.erase(found);
  }
  // As memset.
  static void fill(char* memory, unsigned char value, size_t length) {
    char* end = memory + length;
    char* first = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + PAGE - 1) / PAGE * PAGE);
    size_t whole = first < end ? (end - first) / PAGE * PAGE : 0;
    if (value || whole < UNIT || !replace(first, whole, MAP_ANONYMOUS, -1)) {
      memset(memory, value, length);
      return;
    }
    memset(memory, 0, first - memory);
    memset(first + whole, 0, end - first - whole);
  }

 private:
  static constexpr size_t UNIT = 1 << 20, PAGE = 4096;
  static bool replace(void* memory, size_t length, int flags, int file) {
    flags |= MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE;
    return mmap(memory, length, PROT_READ | PROT_WRITE, flags, file, 0) != MAP_FAILED;
  }
  std::mutex mutex;
  std::map<void*, size_t> lengths;
  int initial = -1;
};
DeviceMemory device_memory;

std::map<std::string, Bind> kernels = {
    ENTRY(kuznyechik_tables),
    SEAL_OPEN_ENTRIES(aes_kmac128), SEAL_OPEN_ENTRIES(aes_kmac256), SEAL_OPEN_ENTRIES(aes_turboshake128x4),
    SEAL_OPEN_ENTRIES(kuznyechik_kmac128), SEAL_OPEN_ENTRIES(kuznyechik_kmac256), SEAL_OPEN_ENTRIES(kuznyechik_turboshake128x4),
    ENTRY(md6_nodes), ENTRY(md6_nodes_shared),
};

int number_from(const char* variable, int otherwise) {
  const char* value = getenv(variable);
  return value ? atoi(value) : otherwise;
}

}  // namespace

EXPORT cuInit(unsigned) {
  if (int status = begin("cuInit", nullptr, false)) return status;
  return number_from("FAKE_CUDA_DEVICES", 1) ? SUCCESS : 100;
}
EXPORT cuDriverGetVersion(int* version) { return *version = number_from("FAKE_CUDA_VERSION", 13000), SUCCESS; }
EXPORT cuDeviceGetCount(int* count) { return *count = number_from("FAKE_CUDA_DEVICES", 1), SUCCESS; }
EXPORT cuDeviceGet(int* device, int number) { return *device = number, SUCCESS; }
EXPORT cuDeviceGetName(char* name, int length, int) { return snprintf(name, length, "Fake GPU"), SUCCESS; }
// Two multiprocessors. Attribute 97 is the shared memory of a block.
EXPORT cuDeviceGetAttribute(int* value, int which, int) { return *value = which == 97 ? 101376 : 2, SUCCESS; }
EXPORT cuGetErrorName(int status, const char** name) {
  return *name = status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_MADE_UP", SUCCESS;
}

EXPORT cuCtxCreate_v2(void** context, unsigned, int) {
  if (int status = begin("cuCtxCreate_v2", nullptr, false)) return status;
  device_memory.prepare();
  std::lock_guard<std::mutex> lock(global);
  contexts.push_back(current = new Context);
  *context = current;
  return SUCCESS;
}
static void finish(Context* context) {
  std::vector<Stream*> all;
  {
    std::lock_guard<std::mutex> lock(global);
    all = streams;
  }
  for (Stream* stream : all) {
    if (stream->context == context) stream->finish();
  }
}
// Contexts, streams and events are never freed, so that a late call still finds them.
EXPORT cuCtxDestroy_v2(void* context) {
  finish(static_cast<Context*>(context));
  return SUCCESS;
}
EXPORT cuCtxSetCurrent(void* context) {
  current = static_cast<Context*>(context);
  BEGIN();
  return SUCCESS;
}
EXPORT cuCtxSynchronize() {
  BEGIN();
  finish(current);
  return SUCCESS;
}

EXPORT cuModuleLoadData(void** module, const void*) {
  BEGIN();
  return *module = &kernels, SUCCESS;
}
EXPORT cuModuleUnload(void*) { return SUCCESS; }
EXPORT cuModuleGetFunction(void** function, void*, const char* name) {
  BEGIN();
  auto found = kernels.find(name);
  if (found == kernels.end()) return NOT_FOUND;
  return *function = &found->second, SUCCESS;
}
EXPORT cuFuncSetAttribute(void*, int, int) {
  BEGIN();
  return SUCCESS;
}

EXPORT cuStreamCreate(void** stream, unsigned) {
  BEGIN();
  std::lock_guard<std::mutex> lock(global);
  streams.push_back(new Stream(current));
  return *stream = streams.back(), SUCCESS;
}
EXPORT cuStreamDestroy_v2(void*) { return SUCCESS; }

EXPORT cuEventCreate(void** event, unsigned) {
  BEGIN();
  Event* made = new Event;
  made->context = current;
  return *event = made, SUCCESS;
}
EXPORT cuEventDestroy_v2(void*) { return SUCCESS; }
EXPORT cuEventRecord(void* handle, void* stream) {
  BEGIN(static_cast<Stream*>(stream));
  Event* event = static_cast<Event*>(handle);
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->happened = false;
  }
  static_cast<Stream*>(stream)->submit([event] {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->happened = true;
    event->changed.notify_all();
  });
  return SUCCESS;
}
EXPORT cuStreamWaitEvent(void* stream, void* handle, unsigned) {
  BEGIN(static_cast<Stream*>(stream));
  Event* event = static_cast<Event*>(handle);
  static_cast<Stream*>(stream)->submit([event] {
    std::unique_lock<std::mutex> lock(event->mutex);
    event->changed.wait(lock, [event] { return event->happened; });
  });
  return SUCCESS;
}
EXPORT cuEventQuery(void* handle) {
  BEGIN();
  Event* event = static_cast<Event*>(handle);
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->context->lost ? DEVICE_LOST : event->happened ? SUCCESS : NOT_READY;
}
EXPORT cuEventSynchronize(void* handle) {
  BEGIN();
  Event* event = static_cast<Event*>(handle);
  std::unique_lock<std::mutex> lock(event->mutex);
  event->changed.wait(lock, [event] { return event->happened; });
  return event->context->lost ? DEVICE_LOST : SUCCESS;
}

EXPORT cuMemAlloc_v2(uint64_t* address, size_t length) {
  BEGIN();
  void* memory = device_memory.allocate(length);
  if (!memory) return OUT_OF_MEMORY;
  return *address = reinterpret_cast<uint64_t>(memory), SUCCESS;
}
EXPORT cuMemFree_v2(uint64_t address) {
  BEGIN();
  finish(current);
  return device_memory.free(reinterpret_cast<void*>(address)), SUCCESS;
}
EXPORT cuMemHostRegister_v2(void*, size_t, unsigned) {
  BEGIN();
  return SUCCESS;
}
EXPORT cuMemHostUnregister(void*) { return SUCCESS; }
EXPORT cuMemHostGetDevicePointer_v2(uint64_t* address, void* memory, unsigned) {
  BEGIN();
  return *address = reinterpret_cast<uint64_t>(memory), SUCCESS;
}

EXPORT cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t length, void* stream) {
  BEGIN(static_cast<Stream*>(stream));
  static_cast<Stream*>(stream)->submit([=] { memcpy(reinterpret_cast<void*>(to), from, length); });
  return SUCCESS;
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t length, void* stream) {
  BEGIN(static_cast<Stream*>(stream));
  static_cast<Stream*>(stream)->submit([=] { memcpy(to, reinterpret_cast<void*>(from), length); });
  return SUCCESS;
}
EXPORT cuMemsetD8Async(uint64_t to, unsigned char value, size_t length, void* stream) {
  BEGIN(static_cast<Stream*>(stream));
  static_cast<Stream*>(stream)->submit([=] { DeviceMemory::fill(reinterpret_cast<char*>(to), value, length); });
  return SUCCESS;
}

EXPORT cuStreamWriteValue32_v2(void* handle, uint64_t to, uint32_t value, unsigned) {
  Stream* stream = static_cast<Stream*>(handle);
  BEGIN(stream);
  stream->submit([=] {
    if (!stream->context->lost) __atomic_store_n(reinterpret_cast<uint32_t*>(to), value, __ATOMIC_RELEASE);
  });
  return SUCCESS;
}

EXPORT cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                      unsigned shared, void* stream, void** values, void**) {
  BEGIN(static_cast<Stream*>(stream));
  if (threads > 1024) return INVALID;
  // As on a device, an invalid address causes the context to be lost once the kernel runs.
  bool batch = false, check = false, hash = false;  // seal or open; their check; a level of MD6
  for (auto& [name, kernel] : kernels) {
    batch |= function == &kernel && (name.find("seal_") == 0 || name.find("open_") == 0);
    check |= function == &kernel && name.find("check_") == 0;
    hash |= function == &kernel && name.find("md6_") == 0;
  }
  if ((batch || check) && *static_cast<uint64_t*>(values[0]) < 4096) {
    Context* context = static_cast<Stream*>(stream)->context;
    static_cast<Stream*>(stream)->submit([context] { context->lost = true; });
    return SUCCESS;
  }
  auto body = (*static_cast<Bind*>(function))(values);
  bool wrong = spoils;
  const Md6Layer* layer = wrong && hash ? *static_cast<const Md6Layer**>(values[1]) : nullptr;
  uint8_t* hashed = wrong && hash ? *static_cast<uint8_t**>(values[6]) : nullptr;
  wrong = wrong && batch;
  uint32_t* count = wrong ? static_cast<uint32_t*>(values[2]) : nullptr;
  uint32_t chunks = count ? *count : 0;
  uint8_t* output = count ? *static_cast<uint8_t**>(values[4]) : nullptr;
  const Chunk* described = count ? *static_cast<const Chunk**>(values[1]) : nullptr;
#ifdef PLANTED_FAULTS
  uint32_t planted = 0;
  if (FILE* file = fopen((std::string(getenv("CUDA_FAULTS")) + "/planted").c_str(), "r")) {
    if (fscanf(file, "%u", &planted) != 1) planted = 0;
    fclose(file);
  }
#endif
  static_cast<Stream*>(stream)->submit([=] {
    std::lock_guard<std::mutex> lock(shim);
#ifdef PLANTED_FAULTS
    PLANTED = planted;
#endif
    cpu::launch(blocks, threads, shared, false, body);
    for (uint32_t i = 0; i < chunks; i++) output[described[i].target] ^= 0x40;
    if (hashed) hashed[layer->value * 128] ^= 0x40;
  });
  return SUCCESS;
}
