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

#include "base/error.h"
#include "base/printable.h"
#include "base/standard_streams.h"
#include "engine/engine.h"
#include "engine/start.h"

using namespace zeroth;
using model::MicroBatch;
using torch::Tensor;

constexpr const char* kUsage =
    "usage: custom_model DS_CONFIG TEXT [OUTPUT_FOLDER]\n"
    "Trains a small model by DS_CONFIG to guess the bytes of the file TEXT, any of 10 kB or more,\n"
    "evaluates it on the first tenth, and saves it into OUTPUT_FOLDER.\n";

constexpr int64_t kVocab = 256, kContext = 8, kHidden = 128, kLength = 64, kSteps = 200,
                  kLeastText = 10'000;

struct Embed : model::Block {
  Embed() : Block("embed") {}
  Tensor forward(const Tensor&, const MicroBatch& batch) override {
    const Tensor padded = at::constant_pad_nd(batch.tokens, {kContext - 1, 0});
    return table(padded.unfold(1, kContext, 1)).flatten(2);  // [batch, seq, hidden]
  }
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(kVocab, kHidden / kContext));
};

struct Layer : model::Block {
  explicit Layer(int index) : Block(fmt::format("layers.{}", index)) {}
  Tensor forward(const Tensor& x, const MicroBatch&) override { return x + down(at::gelu(up(x))); }
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kHidden, 4 * kHidden));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * kHidden, kHidden));
};

struct Head : model::Block {
  Head() : Block("head") {}
  Tensor forward(const Tensor& x, const MicroBatch& batch) override {
    const Tensor logits = out(x).flatten(0, 1).to(torch::kFloat);
    const Tensor targets = batch.targets.flatten();
    const Tensor sum = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
    return sum / batch.loss_divisor;  // over all ranks and micro-batches: the mean
  }
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
    at::manual_seed(run.config.seed);
    model::Blocks blocks = {std::make_shared<Embed>()};
    for (int i = 0; i < 3; ++i) blocks.push_back(std::make_shared<Layer>(i));
    blocks.push_back(std::make_shared<Head>());
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
