#include "model/hf/model_writer.h"

#include "base/error.h"
#include "model/hf/adapter_files.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {

namespace {

ModelLayout plan_files(const WriterOptions& options, const std::vector<PlannedTensor>& parameters) {
  return options.adapter
             ? plan_adapter(options.spec, options.adapter->plan, parameters)
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
  const auto location = layout_.locations.find(name);
  ZEROTH_CHECK(location != layout_.locations.end(), "{} is not planned", name);
  require_finite(target_, name, tensor);
  shards_[location->second.file]->write(location->second.name, tensor);
}

int64_t ModelWriter::finish() {
  int64_t written = 0;
  for (const auto& shard : shards_) written += shard->finish();
  return written;
}

std::unique_ptr<PreviousModel> ModelWriter::commit(const OutputGuard& guard,
                                                   int64_t written_elsewhere) {
  const int64_t written = finish() + written_elsewhere;
  ZEROTH_CHECK(written == std::ssize(layout_.locations), "{} of {} parameters are written", written,
               layout_.locations.size());
  return directory_->commit(guard);
}

}  // namespace zeroth::model
