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
#include "base/machine/standard_streams.h"
#include "base/text/printable.h"
#include "engine/engine.h"
#include "engine/start.h"

using namespace zeroth;
using model::MicroBatch;
using model::Splits;
using model::TensorParallelPtr;
using torch::Tensor;

constexpr const char* kUsage =
    "usage: custom_model DS_CONFIG TEXT [OUTPUT_FOLDER]\n"
    "Trains a small model by DS_CONFIG to guess the bytes of the file TEXT, any of 10 kB or more,\n"
    "evaluates it on the first tenth, and saves it into OUTPUT_FOLDER.\n";

constexpr int64_t kVocab = 256, kContext = 8, kHidden = 128, kInner = 4 * kHidden, kLength = 64,
                  kSteps = 200, kMinTextBytes = 10'000;

// With "tensor_parallel": {"autotp_size": N} in DS_CONFIG N ranks share every layer. Between blocks
// each of them has a run of the flattened tokens then, and splits() says which parameters it holds
// a box of; the others are whole on all, and what backward gives them is an addend. Without `ranks`
// a block need not know of any of this.
Tensor local_shard(const Tensor& all, const TensorParallelPtr& tp) {
  if (!tp) return all;
  const Tensor tokens = all.flatten(0, 1);
  const model::SequenceShard shard = model::sequence_shard(tokens.size(0), *tp);
  return model::pad_to_shards(tokens, *tp).narrow(0, shard.first, shard.rows);
}

std::optional<Splits> no_splits(const TensorParallelPtr& tp) {
  return tp ? std::optional(Splits()) : std::nullopt;
}

struct Embed : model::Block {
  explicit Embed(TensorParallelPtr tensor_parallel)
      : Block("embed"), tp(std::move(tensor_parallel)) {}
  Tensor forward(const Tensor&, const MicroBatch& batch) override {
    const Tensor padded = at::constant_pad_nd(batch.tokens, {kContext - 1, 0});
    return local_shard(table(padded.unfold(1, kContext, 1)).flatten(2),
                       tp);  // [batch, seq, hidden]
  }
  std::optional<Splits> splits() const override { return no_splits(tp); }
  TensorParallelPtr tp;
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(kVocab, kHidden / kContext));
};

struct Layer : model::Block {
  Layer(int index, const TensorParallelPtr& tensor_parallel)
      : Block(fmt::format("layers.{}", index)),
        tp(tensor_parallel),
        local_size(kInner / model::tp_size(tp)),
        first(tp ? tp->rank() * local_size : 0) {}
  Tensor forward(const Tensor& x, const MicroBatch&) override {
    if (!tp) return x + down(at::gelu(up(x)));
    const Tensor inner = at::gelu(up(model::gather_sequence(x, tp, label())));
    return x + model::reduce_scatter_sequence(at::linear(inner, down->weight), tp, label()) +
           down->bias;
  }
  std::optional<Splits> splits() const override {
    if (!tp) return std::nullopt;
    return Splits{{"up.weight", {"up.weight", {kInner, kHidden}, {first, 0}}},
                  {"up.bias", {"up.bias", {kInner}, {first}}},
                  {"down.weight", {"down.weight", {kHidden, kInner}, {0, first}}}};
  }
  TensorParallelPtr tp;
  int64_t local_size, first;  // of the inner size
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kHidden, local_size));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(local_size, kHidden));
};

struct ByteHead : model::Block {
  explicit ByteHead(TensorParallelPtr tensor_parallel)
      : Block("head"), tp(std::move(tensor_parallel)) {}
  Tensor forward(const Tensor& x, const MicroBatch& batch) override {
    const Tensor logits = out(x).flatten(0, -2).to(torch::kFloat);
    // Rows that fill up a run have no target, which is one below the first token.
    const Tensor targets = local_shard(batch.targets.unsqueeze(-1) + 1, tp).flatten() - 1;
    const Tensor sum = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, -1);
    if (!tp) return sum / batch.loss_normalizer;  // over all ranks and micro-batches: the mean
    // All that share the layers return one loss; of its gradient each has its run's.
    const Tensor all = sum.detach().clone();
    tp->all_reduce(all, comm::ReduceOp::kSum, "loss");
    return (sum + (all - sum.detach())) / batch.loss_normalizer;
  }
  std::optional<Splits> splits() const override { return no_splits(tp); }
  TensorParallelPtr tp;
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kHidden, kVocab));
};

// Windows of a text, dealt to micro-batches and ranks in turn, over and over.
class TextWindows : public engine::DataLoader {
 public:
  TextWindows(Tensor text, engine::Engine& engine)
      : text_(std::move(text)),
        rows_(engine.config().batch.micro_batch_size),
        next_(engine.mesh().dp_group().rank() * rows_),
        stride_(engine.mesh().dp_group().size() * rows_) {}

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
      print_output(kUsage);
      return 0;
    }
    if (argc < 3 || argc > 4) throw Error("{}", kUsage);
    run = start(argv[1]);
    const TensorParallelPtr tp = engine::tensor_parallel_group(*run.mesh, run.config);
    at::manual_seed(run.config.seed + (tp ? tp->rank() : 0));  // other boxes, other values
    model::Blocks blocks = {std::make_shared<Embed>(tp)};
    for (int i = 0; i < 3; ++i) blocks.push_back(std::make_shared<Layer>(i, tp));
    blocks.push_back(std::make_shared<ByteHead>(tp));
    engine = initialize(blocks, run.config, run.mesh);

    const int64_t size = static_cast<int64_t>(std::filesystem::file_size(argv[2]));
    if (size < kMinTextBytes)
      throw Error("{}: {} bytes, {} are the least", argv[2], size, kMinTextBytes);
    const Tensor text = at::from_file(argv[2], false, size, torch::kByte).to(torch::kLong);
    TextWindows train_data(text.narrow(0, size / 10, size - size / 10), *engine);
    TextWindows eval_data(text.narrow(0, 0, size / 10), *engine);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const engine::StepStats stats = engine->train_batch(train_data);
      if (run.mesh->rank() == 0 && (step == 1 || step % 50 == 0)) {
        std::puts(fmt::format("step {} | loss {:.4f}", step, stats.loss).c_str());
      }
    }
    const engine::EvalStats stats = engine->eval_batch(eval_data, /*micro_batches=*/10);
    if (run.mesh->rank() == 0)
      std::puts(fmt::format("unseen text | loss {:.4f}", stats.loss).c_str());
    if (argc > 3) engine->save_model(argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    write_last_message(printable_message(fmt::format("custom_model: error: {}\n", error.what())));
    std::_Exit(1);  // not through destructors, which may wait for the other ranks
  }
}
