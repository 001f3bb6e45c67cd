#include "model/hf/multimodal.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/tensor_slice.h"
#include "base/text/printable.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/safetensors.h"

namespace zeroth::model {
namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;

bool have_equal_values(const SafetensorsDirectory& files, const std::string& name,
                       const std::string& other_name) {
  const auto& [file, tensor] = files.entries().at(name);
  const auto& [other_file, other] = files.entries().at(other_name);
  return tensor->dtype == other->dtype && tensor->shape == other->shape &&
         std::ranges::equal(file->bytes(*tensor), other_file->bytes(*other));
}

int64_t element_bytes(const CopiedTensor& tensor) {
  return element_size(tensor.dtype).value_or(1);
}

}  // namespace

bool is_other_tensor(const ModelSpec& spec, const std::string& stored) {
  if (!spec.multimodal) return false;
  const Family names = family_in_files(spec);
  return !stored.starts_with(names.prefix) && !stored.starts_with(names.head);
}

void find_other_tensors(const std::filesystem::path& directory, ModelSpec& spec) {
  const SafetensorsDirectory files(directory);
  MultimodalModel& model = *spec.multimodal;
  model.directory = directory;
  model.has_old_names = std::ranges::any_of(files.entries(), [](const auto& named) {
    return named.first.starts_with("language_model.");
  });
  for (const auto& [name, entry] : files.entries()) {
    if (!is_other_tensor(spec, name)) continue;
    const StoredTensor& tensor = *entry.tensor;
    model.others.push_back(
        {name, tensor.dtype, tensor.shape, static_cast<int64_t>(tensor.end - tensor.begin)});
  }
  // Wide elements first, so that every tensor of a file of some of these is aligned.
  std::ranges::stable_sort(model.others, std::greater(), element_bytes);
  const Family names = family_in_files(spec);
  const std::string head = stored_name(names, "head.weight");
  const std::string embedding = stored_name(names, "embedding.weight");
  if (files.entries().contains(head) && files.entries().contains(embedding))
    spec.tie_word_embeddings =
        spec.tie_word_embeddings && have_equal_values(files, head, embedding);
}

int64_t copied_bytes(const ModelSpec& spec) {
  int64_t sum = 0;
  if (!spec.multimodal) return sum;
  for (const CopiedTensor& tensor : spec.multimodal->others) sum += tensor.bytes;
  return sum;
}

void copy_tensors(const std::filesystem::path& directory, const std::vector<CopiedTensor>& tensors,
                  const std::function<void(std::span<const std::byte>)>& write) {
  if (tensors.empty()) return;
  const SafetensorsDirectory files(directory);
  for (const CopiedTensor& planned : tensors) {
    const auto found = files.entries().find(planned.name);
    if (found == files.entries().end() || found->second.tensor->dtype != planned.dtype ||
        found->second.tensor->shape != planned.shape) {
      throw Error("{} has changed: its tensor {} cannot be copied to the saved model",
                  directory.string(), shortened(planned.name));
    }
    const auto& [file, tensor] = found->second;
    std::span<const std::byte> bytes = file->bytes(*tensor);
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min(bytes.size(), kBlockBytes));
      write(block);
      file->drop_pages(block);
      bytes = bytes.subspan(block.size());
    }
  }
}

}  // namespace zeroth::model
