// Program `comm-bench`: how fast the groups of a run are, as `zeroth --num_gpus 2 comm-bench`.
//
//   comm-bench [--tensor N] [--most MIB] [--plain]
//
// For the ranks of the world, those that share layers (N of them) and those that do not: every
// collective of fp32 tensors from 4 KiB to MIB (64), the mean of several, blocking. Bandwidths as
// comm/comm_log.h defines them. --plain: beside Gloo over all ranks, without shared memory (CPU).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.h"
#include "base/heap.h"
#include "base/standard_streams.h"
#include "base/units.h"
#include "comm/bootstrap.h"
#include "comm/comm_log.h"
#include "comm/gloo_group.h"
#include "comm/host_address.h"
#include "comm/mesh.h"
#include "comm/rendezvous.h"

namespace {

using namespace zeroth;

constexpr double kSecondsPerRow = 0.3;
constexpr int64_t kLeastBytes = 4 << 10;

struct Options {
  int tensor = 1;
  int64_t most_bytes = 64 << 20;
  bool plain = false;
};

constexpr const char* kHelp =
    "How fast the groups of a run are: zeroth --num_gpus 2 comm-bench\n\n"
    "  --tensor N   ranks that share layers are a group, too, as are those that do not\n"
    "  --most MIB   of the largest tensors (64)\n"
    "  --plain      beside Gloo over all ranks, without shared memory (CPU)\n";

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto number = [&]() -> int64_t {
      const auto value = i + 1 < argc ? parse_number<int>(argv[++i]) : std::nullopt;
      if (!value || *value < 1) throw Error("comm-bench: {} takes a number of at least 1", flag);
      return *value;
    };
    if (flag == "--tensor") {
      options.tensor = static_cast<int>(number());
    } else if (flag == "--most") {
      options.most_bytes = number() << 20;
    } else if (flag == "--plain") {
      options.plain = true;
    } else {
      throw Error("comm-bench: what is {}? It takes --tensor N, --most MIB and --plain", flag);
    }
  }
  return options;
}

// A device's collectives have ended when the host has seen a value of them.
void wait_for_device(const torch::Tensor& tensor) {
  if (!tensor.is_cpu()) tensor.narrow(0, 0, 1).item<float>();
}

// Seconds of one call on the slowest rank; every rank makes the same number of them.
double seconds_per_call(comm::Group& group, const torch::Tensor& probe,
                        const std::function<void()>& call) {
  const auto slowest = [&](double seconds) {
    const torch::Tensor most = torch::full({1}, seconds, probe.options());
    group.all_reduce(most, comm::Reduce::kMax).wait();
    return most.item<double>();
  };
  const auto run = [&](int64_t count) {
    slowest(0);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) call();
    wait_for_device(probe);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  run(2);
  const double once = slowest(run(3) / 3);
  const auto count = std::clamp<int64_t>(static_cast<int64_t>(kSecondsPerRow / once), 3, 10'000);
  return slowest(run(count) / static_cast<double>(count));
}

struct Verb {
  std::string name;  // as CommLog's
  std::function<void()> call;
};

std::vector<Verb> verbs_of(comm::Group& group, const torch::Tensor& whole,
                           const torch::Tensor& other, const torch::Tensor& part) {
  return {{"all_reduce", [=, &group] { group.all_reduce(whole).wait(); }},
          {"all_gather", [=, &group] { group.all_gather(whole, part).wait(); }},
          {"reduce_scatter", [=, &group] { group.reduce_scatter(part, whole).wait(); }},
          {"broadcast", [=, &group] { group.broadcast(whole, 0).wait(); }},
          {"all_to_all", [=, &group] { group.all_to_all(other, whole).wait(); }}};
}

void measure(const std::string& name, comm::Group& group, torch::Device device, bool tells,
             int64_t most_bytes) {
  if (group.size() == 1) return;
  if (tells)
    fmt::print("{}: {}\n{:16}{:>10}{:>12}{:>16}{:>14}{:>14}\n", name, counted(group.size(), "rank"),
               "collective", "size", "us", "algorithm GB/s", "bus GB/s", "sent");
  for (int64_t bytes = kLeastBytes; bytes <= most_bytes; bytes *= 4) {
    const int64_t part_numel = std::max<int64_t>(1, bytes / 4 / group.size());
    const auto zeros = [&](int64_t n) { return torch::zeros({n}, device); };
    const torch::Tensor whole = zeros(part_numel * group.size()), other = torch::zeros_like(whole);
    const torch::Tensor part = zeros(part_numel);
    for (const Verb& verb : verbs_of(group, whole, other, part)) {
      const double seconds = seconds_per_call(group, part, verb.call);
      const comm::CommTimes before = group.times();
      verb.call();
      const int64_t sent = group.times().bytes_sent - before.bytes_sent;
      const auto speed = comm::CommLog::bandwidth(
          {verb.name, static_cast<int64_t>(whole.nbytes()), group.size()}, seconds);
      if (tells)
        fmt::print("{:16}{:>10}{:>12.1f}{:>16.3f}{:>14.3f}{:>14}\n", verb.name,
                   format_bytes(static_cast<int64_t>(whole.nbytes())), seconds * 1e6,
                   speed.algorithm, speed.bus, format_bytes(sent));
    }
    std::fflush(stdout);
  }
}

std::unique_ptr<comm::Group> plain_gloo(comm::RankEnv env,
                                        const c10::intrusive_ptr<c10d::Store>& store) {
  comm::GlooOptions options;
  options.timeout = env.timeout;
  options.address = comm::is_loopback(env.master_addr)
                        ? env.master_addr
                        : comm::address_towards(env.master_addr, env.master_port);
  return comm::make_gloo_group(store, env.rank, env.world_size, options);
}

void bench(const Options& options, const comm::RankEnv& env) {
  comm::load_device(env);
  const auto mesh = comm::make_mesh(env);
  mesh->arrange(comm::GridShape::data(mesh->world_size() / options.tensor)
                    .with(comm::Axis::kTensor, options.tensor));
  const bool tells = env.rank == 0;
  if (tells) fmt::print("machines: {}\n", comm::list_of(mesh->hosts()));
  for (const std::string& note : mesh->notes()) {
    if (tells) fmt::print("note: {}\n", note);
  }
  const auto on = [&](const std::string& name, comm::Group& group) {
    measure(name, group, mesh->device(), tells, options.most_bytes);
  };
  on("world", mesh->world());
  if (options.tensor > 1) {
    on("data", mesh->data());
    on("tensor", mesh->group({comm::Axis::kTensor}));
  }
  if (!options.plain) return;
  if (mesh->hosts().size() == 1 || !mesh->device().is_cpu())
    throw Error("comm-bench: --plain compares ranks of several machines on the CPU");
  // On several machines the store is served as long as rank 0's mesh lives.
  comm::RankEnv again = env;
  again.agent_store = true;
  ++again.attempt;
  const auto met = comm::meet(again);
  const auto group = plain_gloo(env, met.key_store);
  on("world, plain Gloo", *group);
  mesh->world().all_reduce(torch::zeros({1})).wait();  // nobody leaves while others measure
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  if (argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h")) {
    fmt::print("{}", kHelp);
    return 0;
  }
  keep_freed_memory();  // as `finetune`
  try {
    bench(options_of(argc, argv), comm::RankEnv::from_environment());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
