// Checkpoints of a Llama-shaped model of random weights: at once beside a plain writer of the same
// bytes, and while training goes on beside the same steps without.
//
//   build/bin/zeroth --num_gpus 2 build/bin/checkpoint DS_CONFIG FOLDER [small|large [TOKENS
//   [PAIRS [STEPS]]]]
//
// small has 31.6M parameters, large 293M; a micro-batch has TOKENS tokens, in rows of up to 256.
// What is told are medians of PAIRS, of STEPS steps each, with the least and the greatest of what
// differs little; without any steps, of files alone. FOLDER must not be there; it is removed again.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text/printable.h"
#include "comm/cpu_collectives.h"
#include "engine/engine.h"
#include "engine/start.h"
#include "model/blocks/build_blocks.h"
#include "model/weight_source.h"

namespace {

using namespace zeroth;
using engine::StartOptions;
namespace fs = std::filesystem;

constexpr int64_t kMaxRowTokens = 256;
constexpr double kMiB = 1 << 20;

model::ModelSpec make_spec(bool large) {
  model::ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = large ? 16384 : 8192;
  spec.hidden_size = large ? 1024 : 512;
  spec.intermediate_size = large ? 2816 : 1376;
  spec.num_layers = large ? 22 : 8;
  spec.num_heads = large ? 16 : 8;
  spec.num_kv_heads = large ? 8 : 4;
  spec.head_dim = 64;
  spec.max_positions = kMaxRowTokens;
  return spec;
}

struct RandomTokens final : engine::DataLoader {
  RandomTokens(int64_t tokens, int64_t vocab_)
      : length(std::min(tokens, kMaxRowTokens)), rows(tokens / length), vocab(vocab_) {}
  model::MicroBatch next() override {
    model::MicroBatch batch;
    batch.tokens = at::randint(vocab, {rows, length}, torch::kLong);
    batch.targets = batch.tokens;
    for (int64_t row = 0; row < rows; ++row) {
      batch.samples.push_back(row);
      batch.sample_seeds.push_back(row);
    }
    return batch;
  }
  int64_t length, rows, vocab;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class CheckpointBench {
 public:
  CheckpointBench(engine::Engine& engine, fs::path directory, const RandomTokens& data)
      : engine_(engine), directory_(std::move(directory)), data_(data) {}

  // Seconds between two points at which all ranks are, with nothing left to be written before.
  template <typename Action>
  double timed(Action action) {
    comm::barrier(engine_.mesh());
    if (first()) ::sync();
    comm::barrier(engine_.mesh());
    const auto begin = std::chrono::steady_clock::now();
    action();
    comm::barrier(engine_.mesh());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  double write_plain_file(int64_t bytes) {
    const fs::path path = directory_ / fmt::format("plain-{}", engine_.mesh().rank());
    const double seconds = timed([&] {
      const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (file < 0) throw Error("{} cannot be made", path.string());
      if (::posix_fallocate(file, 0, bytes) != 0) throw Error("no room for {}", path.string());
      constexpr int64_t kChunk = int64_t{4} << 20;
      for (int64_t at = 0; at < bytes; at += kChunk) {
        const auto size = static_cast<size_t>(std::min(kChunk, bytes - at));
        const char* from =
            static_cast<const char*>(memory_.const_data_ptr()) + at % memory_.numel();
        if (::pwrite(file, from, size, at) != static_cast<ssize_t>(size)) {
          throw Error("{} cannot be written", path.string());
        }
      }
      if (::fsync(file) != 0 || ::close(file) != 0) throw Error("{}: fsync", path.string());
    });
    fs::remove(path);
    return seconds;
  }

  double save() {
    fs::path saved;
    const double seconds = timed([&] { saved = engine_.save_checkpoint(directory_).path; });
    clear(saved);
    return seconds;
  }

  // From the disk: what the system keeps of the files goes first.
  double load() {
    const fs::path saved = engine_.save_checkpoint(directory_).path;
    if (first()) forget(saved);
    const double seconds = timed([&] { engine_.load_checkpoint(saved); });
    clear(saved);
    return seconds;
  }

  double train(int steps) {
    return timed([&] {
      for (int i = 0; i < steps; ++i) engine_.train_batch(data_);
    });
  }

  struct OverlappedSave {
    double seconds, held_up, start, finish;
    int written_in;  // steps
  };
  template <typename Action>
  static double measure_seconds(Action action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  OverlappedSave train_and_save(int steps) {
    OverlappedSave beside{0, 0, 0, 0, steps};
    engine::SavedCheckpoint saved;
    const auto finish = [&] {
      beside.finish = measure_seconds([&] { saved = engine_.finish_checkpoint(); });
    };
    beside.seconds = timed([&] {
      beside.start = measure_seconds([&] { engine_.start_checkpoint(directory_); });
      for (int i = 0; i < steps; ++i) {
        engine_.train_batch(data_);
        if (!engine_.decision().checkpoint_written) continue;
        beside.written_in = i + 1;
        finish();
      }
      if (engine_.has_pending_checkpoint()) finish();
    });
    beside.held_up = saved.blocked_s;
    clear(saved.path);
    return beside;
  }

  bool first() const { return engine_.mesh().rank() == 0; }

 private:
  static void forget(const fs::path& directory) {
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      if (!entry.is_regular_file()) continue;
      const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0 || ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0 || ::close(file) != 0) {
        throw Error("{} cannot be forgotten", entry.path().string());
      }
    }
  }

  void clear(const fs::path& directory) {
    comm::barrier(engine_.mesh());
    if (first()) fs::remove_all(directory);
  }

  engine::Engine& engine_;
  fs::path directory_;
  RandomTokens data_;
  torch::Tensor memory_ = at::randint(-128, 127, {int64_t{256} << 20}, torch::kChar);
};

// Bytes of this rank's files in a checkpoint.
int64_t count_rank_bytes(engine::Engine& engine) {
  struct Counter final : engine::StateSink {
    void begin(const std::vector<engine::StateSlice>&) override {}
    void write(size_t, int64_t, const torch::Tensor& values) override {
      bytes += static_cast<int64_t>(values.nbytes());
    }
    int64_t bytes = 0;
  } counter;
  engine.save_states(counter);
  return counter.bytes;
}

void report(const char* what, const std::vector<double>& seconds, double mib,
            std::string_view suffix) {
  const double middle = median(seconds);
  fmt::print("{:13} {:.3f} s, {:.0f} MiB/s{}\n", what, middle, mib / middle, suffix);
}

// What training loses by a save beside it.
struct OverlapStats {
  std::vector<double> without, with, longer, held_up, start, finish, written_in;

  void measure(CheckpointBench& bench, int steps) {
    without.push_back(bench.train(steps));
    const CheckpointBench::OverlappedSave beside = bench.train_and_save(steps);
    with.push_back(beside.seconds);
    longer.push_back(beside.seconds - without.back());
    held_up.push_back(beside.held_up);
    start.push_back(beside.start);
    finish.push_back(beside.finish);
    written_in.push_back(beside.written_in);
  }

  void report(double save, int steps) const {
    fmt::print(
        "held up       {:.3f} s, {:.0f} % of a save: start {:.3f} s, finish {:.3f} s, the rest "
        "copies; written in {:.0f} steps\n",
        median(held_up), 100 * median(held_up) / save, median(start), median(finish),
        median(written_in));
    const auto [min_longer, max_longer] = std::minmax_element(longer.begin(), longer.end());
    fmt::print(
        "{} steps       {:.3f} s without, {:.3f} s with; longer by {:.3f} s ({:.3f} to {:.3f}), "
        "{:.0f} % of a save\n",
        steps, median(without), median(with), median(longer), *min_longer, *max_longer,
        100 * median(longer) / save);
  }
};

void measure(CheckpointBench& bench, engine::Engine& engine, int pairs, int steps) {
  const int64_t rank_bytes = count_rank_bytes(engine);
  const auto total_bytes = torch::full({1}, static_cast<double>(rank_bytes), torch::kDouble);
  engine.mesh().cpu_group().all_reduce(total_bytes).wait();
  const double mib = total_bytes.item<double>() / kMiB;
  bench.train(std::max(steps, 1));
  std::vector<double> plain, saves, loads;
  OverlapStats beside;
  for (int i = 0; i < pairs; ++i) {
    // Steps before each: what was freed some seconds ago is not as quick to write into again.
    bench.train(steps);
    plain.push_back(bench.write_plain_file(rank_bytes));
    bench.train(steps);
    saves.push_back(bench.save());
    if (steps > 0) beside.measure(bench, steps);
    loads.push_back(bench.load());
  }
  if (!bench.first()) return;
  fmt::print("{} ranks, {:.1f}M parameters, {:.0f} MiB\n", engine.mesh().world_size(),
             static_cast<double>(engine.num_parameters()) / 1e6, mib);
  const double save = median(saves);
  report("plain writer", plain, mib, "");
  report("save", saves, mib, fmt::format(", {:.0f} % of it", 100 * median(plain) / save));
  report("load", loads, mib, "");
  if (steps > 0) beside.report(save, steps);
}

}  // namespace

int main(int argc, char** argv) {
  Start run;
  std::unique_ptr<engine::Engine> engine;
  try {
    if (argc < 3) throw Error("checkpoint DS_CONFIG FOLDER [small|large [TOKENS [PAIRS [STEPS]]]]");
    const auto number = [&](int index, int fallback) {
      return argc > index ? std::atoi(argv[index]) : fallback;
    };
    const model::ModelSpec spec = make_spec(argc > 3 && std::string(argv[3]) == "large");
    const RandomTokens data(std::max(1, number(4, 1024)), spec.vocab_size);
    StartOptions options;
    options.flags.micro_batch = data.rows;
    options.hidden_size = spec.hidden_size;
    run = start(argv[1], options);
    engine = initialize(
        model::build_blocks(spec), run.config, run.mesh,
        {.weights = std::make_shared<model::RandomSource>(spec, 1), .saves_beside_training = true});
    const fs::path directory = argv[2];
    if (run.mesh->rank() == 0 && !fs::create_directory(directory)) {
      throw Error("{} is there", directory.string());
    }
    CheckpointBench bench(*engine, directory, data);
    measure(bench, *engine, number(5, 5), number(6, 8));
    comm::barrier(*run.mesh);
    if (run.mesh->rank() == 0) fs::remove_all(directory);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fputs(printable_message(fmt::format("checkpoint: error: {}\n", error.what())).c_str(),
               stderr);
    std::_Exit(1);  // not through destructors, which may wait for the other ranks
  }
}
