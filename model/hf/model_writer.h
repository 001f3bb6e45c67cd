// ModelWriter writes a model directory that transformers can load, or an adapter's for peft.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "model/hf/lora_plan.h"
#include "model/hf/model_layout.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors_writer.h"
#include "model/spec.h"

namespace zeroth::model {

// An AdapterForm describes an adapter that is saved in place of a model, in fp32.
struct AdapterForm {
  LoraPlan plan;
  AdapterTexts texts;
};

struct WriterOptions {
  std::filesystem::path source;  // directory with the config.json, tokenizer and templates to copy
  std::filesystem::path output;
  std::filesystem::path chat_template = {};  // in place of the source's, unless it is empty
  ModelSpec spec;
  const Family* family = nullptr;  // of which the files have the names; null: the spec's
  bool unties_head = false;        // the source's head is tied, that of `spec` is not
  std::optional<AdapterForm> adapter = {};
  torch::ScalarType dtype = torch::kFloat;  // precision of a model on disk
  int64_t max_shard_bytes = kMaxShardBytes;
  bool overwrite = false;
};

// A `ModelWriter` holds one tensor at a time. Nothing appears at the output before commit(); see
// OutputDirectory. Several ranks can write a model: the first one creates the files, the others
// write into them, and it commits once they have finished.
class ModelWriter {
 public:
  // `parameters` have their canonical names, a tied weight once.
  ModelWriter(const WriterOptions& options, const std::vector<PlannedTensor>& parameters);
  // Opens the files of another rank's writer of the same arguments, in its directory(). Throws an
  // Error if they are not there.
  ModelWriter(const std::filesystem::path& directory, const WriterOptions& options,
              const std::vector<PlannedTensor>& parameters);

  // Returns where the files are until commit().
  const std::filesystem::path& directory() const { return path_; }

  // Writes one parameter, in any order, each once, of any floating dtype and device. Throws an
  // Error that names the parameter when it holds a value that is not finite: such a model would be
  // of no use and would replace a good one.
  void write(const std::string& name, const torch::Tensor& tensor);

  // Blocks until what this writer has written is on disk; returns how many tensors of the files
  // that are.
  int64_t finish();
  // Finishes the files and puts the model in its place; returns the model that was replaced, if
  // any. Requires that every tensor has been written, `written_elsewhere` of them by other ranks,
  // which have finished. `guard`: see OutputDirectory.
  std::unique_ptr<PreviousModel> commit(const OutputGuard& guard = {},
                                        int64_t written_elsewhere = 0);

 private:
  void open_files(SafetensorsWriter::Access access);

  std::filesystem::path target_;
  std::optional<OutputDirectory> directory_;  // unset: another rank's
  std::filesystem::path path_;
  ModelLayout layout_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
};

}  // namespace zeroth::model
