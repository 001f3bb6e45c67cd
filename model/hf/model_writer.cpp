#include "model/hf/model_writer.h"

#include "base/error.h"
#include "model/hf/adapter_files.h"
#include "model/hf/multimodal.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {

namespace {

ModelLayout plan_files(const WriterOptions& options, const std::vector<PlannedTensor>& parameters) {
  if (options.adapter) return plan_adapter(options.spec, options.adapter->plan, parameters);
  return options.family != nullptr
             ? plan_model(*options.family, options.dtype, parameters, options.max_shard_bytes)
             : plan_model(options.spec, options.dtype, parameters, options.max_shard_bytes);
}

}  // namespace

ModelWriter::ModelWriter(const WriterOptions& options, const std::vector<PlannedTensor>& parameters)
    : target_(options.output),
      directory_(std::in_place, options.output, options.overwrite),
      path_(directory_->path()),
      layout_(plan_files(options, parameters)) {
  if (options.adapter) {
    write_adapter_metadata(options.source, path_, options.adapter->texts, options.chat_template);
  } else {
    write_model_metadata(options.source, path_, options.dtype, options.chat_template,
                         options.unties_head);
  }
  open_files(SafetensorsWriter::Access::kCreate);
  for (const ModelLayout::CopiedFile& file : layout_.copied_files) {
    SafetensorsWriter copy(path_ / file.name, file.layout);
    copy_tensors(layout_.copied_from, file.tensors,
                 [&](std::span<const std::byte> bytes) { copy.append(bytes); });
    copy.finish();
  }
  if (!layout_.index.empty()) write_file(path_ / kIndexFile, layout_.index);
}

ModelWriter::ModelWriter(const std::filesystem::path& directory, const WriterOptions& options,
                         const std::vector<PlannedTensor>& parameters)
    : target_(options.output), path_(directory), layout_(plan_files(options, parameters)) {
  open_files(SafetensorsWriter::Access::kOpen);
}

void ModelWriter::open_files(SafetensorsWriter::Access access) {
  for (const ModelLayout::ShardFile& file : layout_.files) {
    shards_.push_back(std::make_unique<SafetensorsWriter>(path_ / file.name, layout_.dtype,
                                                          file.tensors, access));
  }
}

void ModelWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const auto found = layout_.locations.find(name);
  ZEROTH_CHECK(found != layout_.locations.end(), "{} is not planned", name);
  require_finite(target_, name, tensor);
  const auto& locations = found->second;
  const auto write_tensor = [&](const ModelLayout::TensorLocation& to,
                                const torch::Tensor& values) {
    shards_[to.file]->write(to.tensor.name, values);
  };
  if (locations.size() == 1) return write_tensor(locations.front(), tensor);
  const torch::Tensor pieces = tensor.reshape({std::ssize(locations), -1});
  int64_t index = 0;
  for (const auto& location : locations)
    write_tensor(location, pieces[index++].view(location.tensor.shape));
}

int64_t ModelWriter::finish() {
  int64_t written = 0;
  for (const auto& shard : shards_) written += shard->finish();
  return written;
}

std::unique_ptr<PreviousModel> ModelWriter::commit(const OutputGuard& guard,
                                                   int64_t written_elsewhere) {
  const int64_t written = finish() + written_elsewhere;
  ZEROTH_CHECK(written == layout_.num_tensors(), "{} of {} tensors are written", written,
               layout_.num_tensors());
  return directory_->commit(guard);
}

}  // namespace zeroth::model
