#include "engine/verify/describe_buffers.h"

#include <torch/types.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/crc32c.h"

namespace zeroth::engine {
namespace {

using Json = nlohmann::json;

// Returns a checksum of the bytes, with their dtype; empty if the values are not set yet.
std::string checksum(const torch::Tensor& value) {
  if (value.is_meta()) return "";
  const torch::Tensor bytes = value.detach().cpu().contiguous();
  const auto* const begin = static_cast<const std::byte*>(bytes.const_data_ptr());
  return c10::toString(bytes.scalar_type()) + format_crc(crc32c({begin, bytes.nbytes()}));
}

}  // namespace

Json describe_buffers(const model::Blocks& blocks, int ranks) {
  Json buffers = Json::array();
  for (const auto& block : blocks) {
    const model::Splits splits = block->splits().value();
    for (const auto& item : block->named_buffers()) {
      const std::vector<int64_t> extent = item.value().sizes().vec();
      const auto split = splits.find(item.key());
      if (split == splits.end()) {
        const std::vector<int64_t> begin(extent.size(), 0);
        buffers.push_back({{"name", block->label() + "." + item.key()},
                           {"shape", extent},
                           {"boxes", {{begin, extent, ranks}}},
                           {"crc32c", checksum(item.value())}});
        continue;
      }
      const std::string name = block->label() + "." + split->second.full_name;
      const bool continues = !buffers.empty() && buffers.back().at("name") == name;
      if (!continues) {
        buffers.push_back(
            {{"name", name}, {"shape", split->second.shape}, {"boxes", Json::array()}});
      }
      buffers.back()["boxes"].push_back({split->second.begin, extent, split->second.num_replicas});
    }
  }
  return buffers;
}

}  // namespace zeroth::engine
