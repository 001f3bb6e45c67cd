#include "comm/bootstrap/rank_bootstrap.h"

#include <c10/util/Logging.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/error.h"
#include "base/machine/memory_file.h"
#include "base/machine/process_limits.h"
#include "base/machine/timer.h"
#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/key_value_store.h"
#include "comm/collective_info.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr const char* kBootstrapFileName = "zeroth-meeting";  // the launcher's name for it
constexpr std::chrono::milliseconds kPause{10};
constexpr std::chrono::seconds kGrace{1};  // after c10d's own limit, whose message says more

// A file store opens its path for each access, also in its destructor, so its file is a base class
// that outlives it. The store of make_waiting_store() waits for its keys.
class BootstrapFileStore final : private MemoryFile, public c10d::FileStore {
 public:
  explicit BootstrapFileStore(MemoryFile file)
      : MemoryFile(std::move(file)),
        FileStore(proc_fd_path(MemoryFile::get()).string(), /*numWorkers=*/-1) {}

  StorePtr clone() override {
    return c10::make_intrusive<BootstrapFileStore>(MemoryFile::open(ticket(), kBootstrapFileName));
  }
};

RankBootstrap from_memory(const RankEnv& env) {
  try {
    MemoryFile file = MemoryFile::open(*env.bootstrap_ticket, kBootstrapFileName);
    const std::string run = fmt::format("meeting-{}", file.inode());
    auto store = c10::make_intrusive<BootstrapFileStore>(std::move(file));
    store->setTimeout(env.timeout);
    return {store, run, /*open_to_all=*/false, /*served_by_rank_0=*/false};
  } catch (const std::exception& cause) {
    throw Error(
        "rank {} of {}: cannot connect through the launcher's memory (ZEROTH_MEETING): {}; "
        "without that variable ranks connect at MASTER_ADDR:MASTER_PORT",
        env.rank, env.world_size, error_message(cause));
  }
}

// Returns the address where rank 0 serves the store. In a run on several nodes this is not a
// loopback address to which the master's name may resolve on its own node.
std::string store_address(const RankEnv& env) {
  const bool several_machines = env.has_local_size && env.local_size < env.world_size;
  if (env.agent_store || !several_machines) return env.master_addr;
  return reachable_address(env.master_addr, env.master_port);
}

c10d::TCPStoreOptions tcp_options(const RankEnv& env, const std::string& address) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(env.master_port);
  options.isServer = env.rank == 0 && !env.agent_store;
  options.waitWorkers = false;
  options.timeout = env.timeout;
  // The store takes ownership of the descriptor.
  if (options.isServer) options.masterListenFd = listen_at(address, env.master_port).release();
  return options;
}

bool is_open(const std::string& address, int port) {
  const Addresses found = resolve_master(address, port, SOCK_STREAM);
  const timeval poll_interval{0, std::chrono::microseconds(kPollInterval).count()};
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const FileDescriptor fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &poll_interval, sizeof(poll_interval));
    if (::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0) return true;
  }
  return false;
}

// Most ranks arrive before rank 0 listens, and c10d would then wait a second before it retries.
void wait_until_open(const RankEnv& env, const std::string& address) {
  SlowWait slow;
  for (SuspendAwareTimer time; !is_open(address, env.master_port);
       std::this_thread::sleep_for(kPause)) {
    const auto waited = time.elapsed();
    if (slow.due(waited)) log_wait(env, "rank 0, which is not listening yet", waited);
    if (waited >= env.timeout)
      throw Error("nothing is listening there: {}", timeout_message(waited));
  }
}

// c10d warns of each address that has no name and of each connection that ends, with its stack
// trace; it throws real errors anyway. After this call the process logs no warning of LibTorch's
// C++ code, unless TORCH_CPP_LOG_LEVEL=INFO asks for more than warnings.
void log_errors_only() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (FLAGS_caffe2_log_level == c10::GLOG_WARNING) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
  });
}

StorePtr connect(const RankEnv& env) {
  const std::string address = store_address(env);
  if (env.rank != 0 && !env.agent_store) wait_until_open(env, address);
  const auto make = [address, options = tcp_options(env, address)]() -> StorePtr {
    log_errors_only();
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  };
  return run_with_timeout(
      env.timeout + kGrace, "something is listening there, but it is not the store of a run", make,
      [&, slow = SlowWait()](std::chrono::milliseconds waited) mutable {
        if (slow.due(waited))
          log_wait(env, "an answer of the run's store, where something is listening", waited);
      });
}

RankBootstrap from_tcp(const RankEnv& env) {
  const std::string run = fmt::format("{}-{}", env.master_addr, env.master_port);
  try {
    StorePtr store = connect(env);
    if (!env.secret.empty()) store = make_signed_store(store, env.secret, run);
    return {store, run, /*open_to_all=*/env.secret.empty(), /*served_by_rank_0=*/!env.agent_store};
  } catch (const std::exception& cause) {
    throw Error("rank {} of {}: cannot reach the store at {}:{}: {}", env.rank, env.world_size,
                env.master_addr, env.master_port, error_message(cause));
  }
}

AgreedAttempt agree_with_ranks(const RankEnv& env, const StorePtr& store) {
  const AttemptMember me{env.rank, env.world_size, env.attempt.index,
                         [env](const std::string& missing, std::chrono::milliseconds waited) {
                           log_wait(env, missing, waited);
                         }};
  try {
    return run_with_timeout(
        2 * env.timeout + kGrace, "the store of the run has stopped answering",
        [store, me, limit = env.timeout] { return agree_on_attempt(*store, me, limit); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& cause) {
    throw Error("rank {} of {}: the store at {}:{}: {}", env.rank, env.world_size, env.master_addr,
                env.master_port, error_message(cause));
  }
}

}  // namespace

// Ignores what an earlier attempt or program of the same ranks left in the store.
RankBootstrap bootstrap_ranks(const RankEnv& env) {
  RankBootstrap bootstrap = env.bootstrap_ticket ? from_memory(env) : from_tcp(env);
  StorePtr& store = bootstrap.store;
  std::string prefix = fmt::format("zeroth/{}", env.attempt.index);
  if (env.agent_restart_counts) {
    bootstrap.agreed = agree_with_ranks(env, store);
    prefix = bootstrap.agreed.prefix;
    bootstrap.run += fmt::format("-{}-{}", bootstrap.agreed.run, bootstrap.agreed.index);
  } else {
    prefix += fmt::format("/{}", store->add(fmt::format("{}/{}", prefix, env.rank), 1));
  }
  store = make_waiting_store(c10::make_intrusive<c10d::PrefixStore>(prefix, store), env);
  return bootstrap;
}

void resolve_attempt(RankEnv& env) {
  if (!env.agent_restart_counts) return;
  env.bootstrap = std::make_shared<RankBootstrap>(bootstrap_ranks(env));
  if (env.attempt.is_global) return;
  const AgreedAttempt& agreed = env.bootstrap->agreed;
  env.attempt.index = agreed.index;
  env.attempt.resumes = agreed.restarts > 0;
  // A store that rank 0 serves is a new one in each attempt.
  if (env.agent_store && env.attempt.run.empty()) env.attempt.run = agreed.run;
}

FileDescriptor listen_at(const std::string& address, int port) {
  const Addresses found = resolve_master(address, port, SOCK_STREAM);
  int cause = 0;
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    FileDescriptor fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (fd.get() >= 0 && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        ::bind(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0)
      return fd;
    if (cause != EADDRINUSE) cause = errno;
  }
  if (cause == EADDRINUSE)
    throw Error("MASTER_PORT={} of {} is taken by another program", port, address);
  if (cause == EADDRNOTAVAIL)
    throw Error("MASTER_ADDR={} is not an address of this machine, where rank 0 runs", address);
  throw Error("cannot listen at {}:{}: {}", address, port, system_reason(cause));
}

}  // namespace zeroth::comm
