// Trains blocks of one's own: an MLP that guesses each byte of a text from the eight before it.
//   zeroth --num_gpus 2 custom_model DS_CONFIG TEXT [OUTPUT_FOLDER]
// with examples/quickstart/train.jsonl as TEXT prints a loss that falls from 5.70 (guessing is
// ln 256 = 5.55) to 1.96.
#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "base/standard_streams.h"
#include "engine/engine.h"
#include "engine/start.h"
#include "engine/tensor_ranks.h"

using namespace zeroth;
using model::MicroBatch;
using model::Splits;
using model::TensorRanksPtr;
using torch::Tensor;

constexpr const char* kUsage =
    "usage: custom_model DS_CONFIG TEXT [OUTPUT_FOLDER]\n"
    "Trains a small model by DS_CONFIG to guess the bytes of the file TEXT, any of 10 kB or more,\n"
    "evaluates it on the first tenth, and saves it into OUTPUT_FOLDER.\n";

constexpr int64_t kVocab = 256, kContext = 8, kHidden = 128, kInner = 4 * kHidden, kLength = 64,
                  kSteps = 200, kLeastText = 10'000;

// With "tensor_parallel": {"autotp_size": N} in DS_CONFIG N ranks share every layer. Between blocks
// each of them has a run of the flattened tokens then, and splits() says which parameters it holds
// a box of; the others are whole on all, and what backward gives them is an addend. Without `ranks`
// a block need not know of any of this.
Tensor own_run(const Tensor& all, const TensorRanksPtr& ranks) {
  if (!ranks) return all;
  const Tensor tokens = all.flatten(0, 1);
  const model::TokenRun run = model::token_run(tokens.size(0), *ranks);
  return model::filled_up(tokens, *ranks).narrow(0, run.first, run.rows);
}

std::optional<Splits> nothing_split(const TensorRanksPtr& ranks) {
  return ranks ? std::optional(Splits()) : std::nullopt;
}

struct Embed : model::Block {
  explicit Embed(TensorRanksPtr shared_by) : Block("embed"), ranks(std::move(shared_by)) {}
  Tensor forward(const Tensor&, const MicroBatch& batch) override {
    const Tensor padded = at::constant_pad_nd(batch.tokens, {kContext - 1, 0});
    return own_run(table(padded.unfold(1, kContext, 1)).flatten(2), ranks);  // [batch, seq, hidden]
  }
  std::optional<Splits> splits() const override { return nothing_split(ranks); }
  TensorRanksPtr ranks;
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(kVocab, kHidden / kContext));
};

struct Layer : model::Block {
  Layer(int index, const TensorRanksPtr& shared_by)
      : Block(fmt::format("layers.{}", index)),
        ranks(shared_by),
        own(kInner / model::size_of(ranks)),
        first(ranks ? ranks->rank() * own : 0) {}
  Tensor forward(const Tensor& x, const MicroBatch&) override {
    if (!ranks) return x + down(at::gelu(up(x)));
    const Tensor inner = at::gelu(up(model::gather_runs(x, ranks, label())));
    return x + model::sum_runs(at::linear(inner, down->weight), ranks, label()) + down->bias;
  }
  std::optional<Splits> splits() const override {
    if (!ranks) return std::nullopt;
    return Splits{{"up.weight", {"up.weight", {kInner, kHidden}, {first, 0}}},
                  {"up.bias", {"up.bias", {kInner}, {first}}},
                  {"down.weight", {"down.weight", {kHidden, kInner}, {0, first}}}};
  }
  TensorRanksPtr ranks;
  int64_t own, first;  // of the inner size
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kHidden, own));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(own, kHidden));
};

struct Head : model::Block {
  explicit Head(TensorRanksPtr shared_by) : Block("head"), ranks(std::move(shared_by)) {}
  Tensor forward(const Tensor& x, const MicroBatch& batch) override {
    const Tensor logits = out(x).flatten(0, -2).to(torch::kFloat);
    // Rows that fill up a run have no target, which is one below the first token.
    const Tensor targets = own_run(batch.targets.unsqueeze(-1) + 1, ranks).flatten() - 1;
    const Tensor sum = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, -1);
    if (!ranks) return sum / batch.loss_divisor;  // over all ranks and micro-batches: the mean
    // All that share the layers return one loss; of its gradient each has its run's.
    const Tensor all = sum.detach().clone();
    ranks->all_reduce(all, comm::Reduce::kSum, "loss");
    return (sum + (all - sum.detach())) / batch.loss_divisor;
  }
  std::optional<Splits> splits() const override { return nothing_split(ranks); }
  TensorRanksPtr ranks;
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kHidden, kVocab));
};

// Windows of a text, dealt to micro-batches and ranks in turn, over and over.
class Windows : public engine::Loader {
 public:
  Windows(Tensor text, engine::Engine& engine)
      : text_(std::move(text)),
        rows_(engine.config().batch.micro_batch_size),
        next_(engine.mesh().data().rank() * rows_),
        stride_(engine.mesh().data().size() * rows_) {}

  MicroBatch next() override {
    MicroBatch batch;
    std::vector<Tensor> rows;
    for (int64_t i = next_; i < next_ + rows_; ++i) {
      batch.samples.push_back(i % ((text_.numel() - 1) / kLength));
      rows.push_back(text_.narrow(0, batch.samples.back() * kLength, kLength + 1));
    }
    next_ += stride_;
    const Tensor windows = at::stack(rows);
    batch.tokens = windows.narrow(1, 0, kLength);
    batch.targets = windows.narrow(1, 1, kLength);
    return batch;
  }

 private:
  Tensor text_;
  int64_t rows_, next_, stride_;
};

int main(int argc, char** argv) {
  Start run;
  std::unique_ptr<engine::Engine> engine;
  try {
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--help" || first == "-h") {
      print_answer(kUsage);
      return 0;
    }
    if (argc < 3 || argc > 4) throw Error("{}", kUsage);
    run = start(argv[1]);
    const TensorRanksPtr ranks = engine::tensor_ranks(*run.mesh, run.config);
    at::manual_seed(run.config.seed + (ranks ? ranks->rank() : 0));  // other boxes, other values
    model::Blocks blocks = {std::make_shared<Embed>(ranks)};
    for (int i = 0; i < 3; ++i) blocks.push_back(std::make_shared<Layer>(i, ranks));
    blocks.push_back(std::make_shared<Head>(ranks));
    engine = initialize(blocks, run.config, run.mesh);

    const int64_t size = static_cast<int64_t>(std::filesystem::file_size(argv[2]));
    if (size < kLeastText) throw Error("{}: {} bytes, {} are the least", argv[2], size, kLeastText);
    const Tensor text = at::from_file(argv[2], false, size, torch::kByte).to(torch::kLong);
    Windows seen(text.narrow(0, size / 10, size - size / 10), *engine);
    Windows unseen(text.narrow(0, 0, size / 10), *engine);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const engine::StepStats stats = engine->train_batch(seen);
      if (run.mesh->rank() == 0 && (step == 1 || step % 50 == 0)) {
        std::puts(fmt::format("step {} | loss {:.4f}", step, stats.loss).c_str());
      }
    }
    const engine::EvalStats stats = engine->eval_batch(unseen, /*micro_batches=*/10);
    if (run.mesh->rank() == 0)
      std::puts(fmt::format("unseen text | loss {:.4f}", stats.loss).c_str());
    if (argc > 3) engine->save_model(argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    say_last_words(printable_message(fmt::format("custom_model: error: {}\n", error.what())));
    std::_Exit(1);  // not through destructors, which may wait for the other ranks
  }
}
