#include "model/hf/model_writer.h"

#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "model/hf/checkpoint_map.h"

namespace zeroth::model {

ModelWriter::ModelWriter(const WriterOptions& options, const std::vector<PlannedTensor>& parameters)
    : target_(options.output),
      spec_(options.spec),
      folder_(options.output, options.overwrite),
      layout_(plan_model(spec_, options.dtype, parameters, options.max_shard_bytes)) {
  write_descriptions(options.source, folder_.path(), options.dtype);
  for (const ModelLayout::File& file : layout_.files) {
    shards_.push_back(std::make_unique<SafetensorsWriter>(folder_.path() / file.name, options.dtype,
                                                          file.tensors));
  }
  if (layout_.index.empty()) return;
  const std::filesystem::path path = folder_.path() / kIndexFile;
  std::ofstream index(path, std::ios::binary);
  index << layout_.index;
  index.close();
  if (!index) {
    throw_write_error(fmt::format("{} cannot be written", path.string()), errno, folder_.path());
  }
}

void ModelWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const auto place = layout_.places.find(name);
  ZEROTH_CHECK(place != layout_.places.end(), "{} is not planned", name);
  require_finite(target_, name, tensor);
  shards_[place->second.file]->write(stored_name(spec_, name), tensor);
}

std::unique_ptr<FormerModel> ModelWriter::commit(const OutputGuard& guard) {
  for (const auto& shard : shards_) shard->finish();
  return folder_.commit(guard);
}

}  // namespace zeroth::model
