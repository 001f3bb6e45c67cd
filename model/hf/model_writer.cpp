#include "model/hf/model_writer.h"

#include "base/error.h"
#include "model/hf/adapter_files.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {

ModelWriter::ModelWriter(const WriterOptions& options, const std::vector<PlannedTensor>& parameters)
    : target_(options.output),
      directory_(options.output, options.overwrite),
      layout_(options.adapter
                  ? plan_adapter(options.spec, options.adapter->plan, parameters)
                  : plan_model(options.spec, options.dtype, parameters, options.max_shard_bytes)) {
  if (options.adapter) {
    write_adapter_metadata(options.source, directory_.path(), options.adapter->texts,
                           options.chat_template);
  } else {
    write_model_metadata(options.source, directory_.path(), options.dtype, options.chat_template,
                         options.unties_head);
  }
  for (const ModelLayout::ShardFile& file : layout_.files) {
    shards_.push_back(std::make_unique<SafetensorsWriter>(directory_.path() / file.name,
                                                          layout_.dtype, file.tensors));
  }
  if (!layout_.index.empty()) write_file(directory_.path() / kIndexFile, layout_.index);
}

void ModelWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const auto location = layout_.locations.find(name);
  ZEROTH_CHECK(location != layout_.locations.end(), "{} is not planned", name);
  require_finite(target_, name, tensor);
  shards_[location->second.file]->write(location->second.name, tensor);
}

std::unique_ptr<PreviousModel> ModelWriter::commit(const OutputGuard& guard) {
  for (const auto& shard : shards_) shard->finish();
  return directory_.commit(guard);
}

}  // namespace zeroth::model
