// A checkpoint of a small model, as finetune saves one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher {

inline constexpr const char* kConfigText =
    "{\n  \"model_type\": \"llama\",\n  \"torch_dtype\": \"bfloat16\",\n  \"vocab_size\": 6\n}\n";

struct SavedTensor {
  std::string name, state;
  checkpoint::Shape shape;
  std::vector<float> values;
};

// A head of 6 x 4, two layers of 5 and a scalar that is frozen.
inline std::vector<SavedTensor> model_of(float first) {
  std::vector<SavedTensor> model = {{"lm_head.weight", "master", {6, 4}, {}},
                                    {"layers.0.weight", "master", {5}, {}},
                                    {"layers.1.weight", "master", {5}, {}},
                                    {"scale", "weight", {}, {}}};
  for (SavedTensor& tensor : model) {
    const int64_t count = TensorSlice::full(tensor.shape).elements();
    for (int64_t i = 0; i < count; ++i) {
      tensor.values.push_back(first + static_cast<float>(i) / 3);
    }
  }
  return model;
}

// Into `path`, in pieces of three elements at most, with the files of a model beside them.
inline void save_model(const std::string& path, int64_t step, const std::vector<SavedTensor>& model,
                       std::string_view config = kConfigText) {
  checkpoint::SingleRankGroup one;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(path), one,
                          {.run_id = "run", .keep = 0});
  checkpoint::Save save = saver.begin(step, 1000);
  checkpoint::RankManifest mine;
  save.run_phase("writing", [&] {
    std::vector<checkpoint::TensorChunk> pieces;
    std::vector<std::vector<float>> values;
    for (const SavedTensor& tensor : model) {
      auto piece = checkpoint::TensorChunk::full(tensor.name, tensor.state, "F32", tensor.shape);
      for (const int64_t all = piece.elements(), last = all; piece.range.begin < last;) {
        piece.range.end = std::min(last, piece.range.begin + 3);
        pieces.push_back(piece);
        values.emplace_back(tensor.values.begin() + piece.range.begin,
                            tensor.values.begin() + piece.range.end);
        piece.range.begin = piece.range.end;
      }
      if (tensor.state != "master") continue;
      pieces.push_back(checkpoint::TensorChunk::full(tensor.name, "exp_avg", "F32", tensor.shape));
      values.emplace_back(tensor.values.size(), -7);
    }
    checkpoint::ChunkFile file = save.chunk_file(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) file.write(i, std::as_bytes(std::span(values[i])));
    mine.files.push_back(file.finish(save.chunk_file_name()));
    if (config.empty()) return;
    write_text(save.path() / "config.json", std::string(config));
    write_text(save.path() / "tokenizer.json", "{\"model\": 1}");
    write_text(save.path() / "model.safetensors", "weights in another precision");
    write_text(save.path() / "trainer_state.json", "{}");
  });
  (void)save.commit(mine, {});
}

}  // namespace zeroth::launcher
