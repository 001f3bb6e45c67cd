// Program `comm-bench`: how fast the groups of a run are, as `zeroth --num_gpus 2 comm-bench`.
//
//   comm-bench [--tensor N] [--least KIB] [--most MIB] [--rounds N] [--only NAME] [--plain]
//
// For the ranks of the world, those that share layers (N of them) and those that do not: every
// collective of fp32 tensors from 4 KiB to MIB (64), blocking; medians of rounds. Bandwidths as
// comm/comm_log.h defines them. --plain: in turns with Gloo over all ranks, without shared memory.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/host_limits.h"
#include "base/machine/standard_streams.h"
#include "base/text/units.h"
#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/rank_bootstrap.h"
#include "comm/bootstrap/rank_env.h"
#include "comm/comm_log.h"
#include "comm/device_mesh.h"
#include "comm/groups/gloo_group.h"
#include "comm/rank_threads.h"

namespace {

using namespace zeroth;

constexpr double kSecondsPerRound = 0.1;

struct CommBenchOptions {
  int tensor = 1;
  int64_t min_bytes = 4 << 10;
  int64_t max_bytes = 64 << 20;
  int rounds = 3;
  std::string only;  // a collective; empty: all
  bool plain = false;
};

constexpr const char* kHelp =
    "How fast the groups of a run are: zeroth --num_gpus 2 comm-bench\n\n"
    "  --tensor N   ranks that share layers are a group, too, as are those that do not\n"
    "  --most MIB   of the largest tensors (64)\n"
    "  --least KIB  of the smallest ones (4); each size is four times the one before\n"
    "  --rounds N   of which the median is told (3)\n"
    "  --only NAME  one collective, as all_reduce\n"
    "  --plain      in turns with Gloo over all ranks, without shared memory (CPU)\n";

CommBenchOptions parse_options(int argc, char** argv) {
  CommBenchOptions options;
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
      options.max_bytes = number() << 20;
    } else if (flag == "--least") {
      options.min_bytes = number() << 10;
    } else if (flag == "--rounds") {
      options.rounds = static_cast<int>(number());
    } else if (flag == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (flag == "--plain") {
      options.plain = true;
    } else {
      throw Error("comm-bench: what is {}? See comm-bench --help", flag);
    }
  }
  return options;
}

// A device's collectives have ended when the host has seen a value of them.
void wait_for_device(const torch::Tensor& tensor) {
  if (!tensor.is_cpu()) tensor.narrow(0, 0, 1).item<float>();
}

// Seconds of one call on the slowest rank; every rank makes the same number of them.
class CollectiveTimer {
 public:
  CollectiveTimer(comm::Group& group, torch::Tensor probe, std::function<void()> call)
      : group_(group), probe_(std::move(probe)), call_(std::move(call)) {
    run(2);
    const double once = slowest(run(3) / 3);
    count_ = std::clamp<int64_t>(static_cast<int64_t>(kSecondsPerRound / once), 1, 10'000);
  }
  void round() { rounds_.push_back(slowest(run(count_) / static_cast<double>(count_))); }
  double median() {
    std::sort(rounds_.begin(), rounds_.end());
    return rounds_[rounds_.size() / 2];
  }

 private:
  double slowest(double seconds) {
    const torch::Tensor slowest_seconds = torch::full({1}, seconds, probe_.options());
    group_.all_reduce(slowest_seconds, comm::ReduceOp::kMax).wait();
    return slowest_seconds.item<double>();
  }
  double run(int64_t count) {
    slowest(0);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) call_();
    wait_for_device(probe_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  comm::Group& group_;
  torch::Tensor probe_;
  std::function<void()> call_;
  int64_t count_;
  std::vector<double> rounds_;
};

struct Collective {
  std::string name;  // as CommLog's
  std::function<void()> call;
};

std::vector<Collective> make_collectives(comm::Group& group, const torch::Tensor& whole,
                                         const torch::Tensor& other, const torch::Tensor& part) {
  return {{"all_reduce", [=, &group] { group.all_reduce(whole).wait(); }},
          {"all_gather", [=, &group] { group.all_gather(whole, part).wait(); }},
          {"reduce_scatter", [=, &group] { group.reduce_scatter(part, whole).wait(); }},
          {"broadcast", [=, &group] { group.broadcast(whole, 0).wait(); }},
          {"all_to_all", [=, &group] { group.all_to_all(other, whole).wait(); }}};
}

void print_header(const std::string& name, int ranks, bool beside) {
  fmt::print("{}: {}\n{:16}{:>10}{:>12}", name, pluralize(ranks, "rank"), "collective", "size",
             "us");
  if (beside) fmt::print("{:>12}{:>8}", "plain us", "ratio");
  fmt::print("{:>16}{:>14}{:>14}\n", "algorithm GB/s", "bus GB/s", "sent");
}

// `plain`: in turns with `group`; may be null.
void measure(const std::string& name, comm::Group& group, torch::Device device, bool reports,
             const CommBenchOptions& options, comm::Group* plain = nullptr) {
  if (group.size() == 1) return;
  if (reports) print_header(name, group.size(), plain != nullptr);
  for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
    const int64_t part_numel = std::max<int64_t>(1, bytes / 4 / group.size());
    const auto zeros = [&](int64_t n) { return torch::zeros({n}, device); };
    const torch::Tensor whole = zeros(part_numel * group.size()), other = torch::zeros_like(whole);
    const torch::Tensor part = zeros(part_numel);
    const std::vector<Collective> collectives = make_collectives(group, whole, other, part);
    const std::vector<Collective> plain_collectives =
        plain ? make_collectives(*plain, whole, other, part) : std::vector<Collective>();
    for (size_t i = 0; i < collectives.size(); ++i) {
      const Collective& collective = collectives[i];
      if (!options.only.empty() && collective.name != options.only) continue;
      CollectiveTimer ours(group, part, collective.call);
      std::optional<CollectiveTimer> beside;
      if (plain) beside.emplace(*plain, part, plain_collectives[i].call);
      for (int round = 0; round < options.rounds; ++round) {
        ours.round();
        if (beside) beside->round();
      }
      const comm::CommTimes before = group.times();
      collective.call();
      const int64_t sent = group.times().bytes_sent - before.bytes_sent;
      const double seconds = ours.median();
      const auto speed = comm::CommLog::bandwidth(
          {collective.name, static_cast<int64_t>(whole.nbytes()), group.size()}, seconds);
      if (!reports) continue;
      fmt::print("{:16}{:>10}{:>12.1f}", collective.name,
                 format_bytes(static_cast<int64_t>(whole.nbytes())), seconds * 1e6);
      if (beside)
        fmt::print("{:>12.1f}{:>8.2f}", beside->median() * 1e6, beside->median() / seconds);
      fmt::print("{:>16.3f}{:>14.3f}{:>14}\n", speed.algorithm, speed.bus, format_bytes(sent));
    }
    std::fflush(stdout);
  }
}

std::unique_ptr<comm::Group> plain_gloo(comm::RankEnv env,
                                        const c10::intrusive_ptr<c10d::Store>& store) {
  comm::GlooOptions options;
  options.timeout = env.timeout;
  options.address = comm::inter_node_address(env);
  return comm::make_gloo_group(store, env.rank, env.world_size, options);
}

void bench(const CommBenchOptions& options, const comm::RankEnv& env) {
  comm::load_device(env);
  const auto mesh = comm::make_mesh(env);
  mesh->set_shape(comm::MeshShape::data_parallel(mesh->world_size() / options.tensor)
                      .with(comm::MeshDim::kTp, options.tensor));
  comm::set_num_threads(env, *mesh);  // as `finetune`: sums of ranks that share cores
  const bool reports = env.rank == 0;
  if (reports) fmt::print("machines: {}\n", comm::describe_nodes(mesh->nodes()));
  for (const std::string& note : mesh->notes()) {
    if (reports) fmt::print("note: {}\n", note);
  }
  // On several machines the store is served as long as rank 0's mesh lives.
  std::unique_ptr<comm::Group> plain;
  if (options.plain) {
    if (mesh->nodes().size() < 2 || !mesh->device().is_cpu())
      throw Error("comm-bench: --plain compares ranks of several machines on the CPU");
    comm::RankEnv again = env;
    again.agent_store = true;
    plain = plain_gloo(env, comm::bootstrap_ranks(again).store);
  }
  measure("world", mesh->world(), mesh->device(), reports, options, plain.get());
  if (options.tensor > 1) {
    measure("data", mesh->dp_group(), mesh->device(), reports, options);
    measure("tensor", mesh->group({comm::MeshDim::kTp}), mesh->device(), reports, options);
  }
  mesh->world()
      .all_reduce(torch::zeros({1}, mesh->device()))
      .wait();  // nobody leaves while others measure
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  if (argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h")) {
    fmt::print("{}", kHelp);
    return 0;
  }
  retain_freed_memory();  // as `finetune`
  try {
    bench(parse_options(argc, argv), comm::RankEnv::from_environment());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", describe_exception(error));
    return 1;
  }
}
