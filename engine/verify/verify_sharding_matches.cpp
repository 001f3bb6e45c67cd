#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "base/tensor_slice.h"
#include "comm/cpu_collectives.h"
#include "device/tensor.h"
#include "engine/verify/verify_ranks_match.h"
#include "zero/parameter_index.h"
#include "zero/unit.h"

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

// Returns the description of a rank's blocks: {"refused": why} if they cannot be planned.
Json describe(const model::Blocks& blocks, const comm::DeviceMesh& mesh) {
  zero::UnitPlan plan;
  try {
    plan = zero::plan_units(blocks, mesh);
  } catch (const Error& error) {
    return {{"refused", error.what()}};
  }
  Json units = Json::array(), parameters = Json::array();
  for (const zero::Unit& unit : plan.units) {
    Json slots = Json::array();
    for (const zero::Slot& slot : unit.layout.slots()) slots.push_back({slot.name, slot.offset});
    units.push_back({{"name", unit.name}, {"numel", unit.layout.numel()}, {"slots", slots}});
  }
  for (const zero::GlobalParameter& parameter : zero::global_parameters(plan)) {
    Json slices = Json::array();
    for (const auto& [unit, slot] : parameter.slices) {
      const TensorSlice box = plan.units[unit].layout.slots()[slot].global.slice;
      slices.push_back({box.offsets, box.sizes, plan.units[unit].num_replicas});
    }
    parameters.push_back({{"name", parameter.name}, {"shape", parameter.shape}, {"boxes", slices}});
  }
  return {{"units", units},
          {"parameters", parameters},
          {"buffers", describe_buffers(blocks, mesh.layout().shape()[comm::MeshDim::kTp])}};
}

// A RankSlice is a slice with the rank that holds it.
struct RankSlice {
  size_t rank = 0;
  TensorSlice box;
  int copies = 1;

  std::string str() const {
    return fmt::format("rank {} holds [{}] at offset [{}]", rank, fmt::join(box.sizes, ", "),
                       fmt::join(box.offsets, ", "));
  }
};

bool overlap(const TensorSlice& one, const TensorSlice& other) {
  for (size_t i = 0; i < one.shape.size(); ++i) {
    if (one.offsets[i] + one.sizes[i] <= other.offsets[i]) return false;
    if (other.offsets[i] + other.sizes[i] <= one.offsets[i]) return false;
  }
  return true;
}

class ShardingCheck {
 public:
  // `descriptions` are of the ranks of one tensor-parallel group, the first of which is rank
  // `first` of the mesh.
  ShardingCheck(const std::vector<Json>& descriptions, size_t first)
      : descriptions_(descriptions), first_(first) {}

  void check() const {
    check_units();
    for (const char* kind : {"parameters", "buffers"}) check_all(kind);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(size_t rank, fmt::format_string<Args...> text, Args&&... args) const {
    throw Error("ranks {} and {} share every layer, but {} (Block::splits)", first_, first_ + rank,
                fmt::format(text, std::forward<Args>(args)...));
  }

  void check_units() const {
    const Json& expected = descriptions_.front().at("units");
    for (size_t rank = 1; rank < descriptions_.size(); ++rank) {
      const Json& own = descriptions_[rank].at("units");
      for (size_t u = 0; u < std::min(own.size(), expected.size()); ++u) {
        if (own[u] != expected[u]) check_unit(rank, expected[u], own[u]);
      }
      if (own.size() != expected.size()) {
        fail(rank, "have {} and {} units of parameters", expected.size(), own.size());
      }
    }
  }

  void check_unit(size_t rank, const Json& expected, const Json& own) const {
    if (own.at("name") != expected.at("name")) {
      fail(rank, "where one has unit {}, the other has {}", expected.at("name").dump(),
           own.at("name").dump());
    }
    const Json &slots = own.at("slots"), &expected_slots = expected.at("slots");
    for (size_t s = 0; s < std::min(slots.size(), expected_slots.size()); ++s) {
      if (slots[s] == expected_slots[s]) continue;
      if (slots[s][0] != expected_slots[s][0]) {
        fail(rank, "where one has {}, the other has {}", expected_slots[s][0].dump(),
             slots[s][0].dump());
      }
      fail(rank,
           "{} begins at element {} of unit {} on the first, and at {} on the second: where slices "
           "differ in size, each rank must set Split::max_numel to the largest",
           slots[s][0].dump(), expected_slots[s][1].dump(), own.at("name").dump(),
           slots[s][1].dump());
    }
    fail(rank,
         "unit {} has {} parameters in {} elements on the first, and {} in {} on the second: where "
         "slices differ in size, each rank must set Split::max_numel to the largest",
         own.at("name").dump(), expected_slots.size(), expected.at("numel").dump(), slots.size(),
         own.at("numel").dump());
  }

  void check_all(const char* kind) const {
    const size_t expected = descriptions_.front().at(kind).size();
    for (size_t rank = 1; rank < descriptions_.size(); ++rank) {
      const size_t own = descriptions_[rank].at(kind).size();
      if (own != expected) fail(rank, "list {} and {} {}", expected, own, kind);
    }
    for (size_t i = 0; i < expected; ++i) check_one(kind, i);
  }

  void check_one(const char* kind, size_t index) const {
    const Json& expected = descriptions_.front().at(kind)[index];
    const auto name = expected.at("name").get<std::string>();
    const auto shape = expected.at("shape").get<std::vector<int64_t>>();
    std::vector<RankSlice> held;
    for (size_t rank = 0; rank < descriptions_.size(); ++rank) {
      const Json& own = descriptions_[rank].at(kind)[index];
      if (own.at("name") != expected.at("name") || own.at("shape") != expected.at("shape")) {
        fail(rank, "one lists {} {}, the other {} {}", name, expected.at("shape").dump(),
             own.at("name").dump(), own.at("shape").dump());
      }
      if (own.contains("crc32c") && own != expected) {
        fail(rank,
             "buffer {} has different values: one of which each rank has its own slice must be "
             "among the splits",
             name);
      }
      for (const Json& box : own.at("boxes")) {
        held.push_back({first_ + rank, {shape, box[0], box[1]}, box[2]});
      }
    }
    check_slices(name, held);
  }

  void check_slices(const std::string& name, const std::vector<RankSlice>& held) const {
    int64_t elements = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      const RankSlice& one = held[i];
      if (one.box.elements() == 0) continue;
      int copies = 0;
      bool is_first = true;
      for (size_t j = 0; j < held.size(); ++j) {
        const RankSlice& other = held[j];
        if (other.box == one.box) {
          ++copies;
          is_first &= j >= i;
        } else if (overlap(one.box, other.box)) {
          throw Error("{}: {}, and {}: some elements are in both (Block::splits)", name, one.str(),
                      other.str());
        }
      }
      if (copies != one.copies) {
        throw Error("{}: {}, declared with {} replicas, but {} ranks hold it (Block::splits)", name,
                    one.str(), one.copies, copies);
      }
      if (is_first) elements += one.box.elements();
    }
    const int64_t whole = held.front().box.tensor_elements();
    if (elements == whole) return;
    std::vector<std::string> all;
    for (const RankSlice& one : held) all.push_back(one.str());
    throw Error("{}: the ranks that share it hold {} of its {} elements: {} (Block::splits)", name,
                elements, whole, fmt::join(all, ", "));
  }

  const std::vector<Json>& descriptions_;
  size_t first_;
};

}  // namespace

nlohmann::json describe_buffers(const model::Blocks& blocks, int ranks) {
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
      if (buffers.empty() || buffers.back().at("name") != name) {
        buffers.push_back(
            {{"name", name}, {"shape", split->second.shape}, {"boxes", Json::array()}});
      }
      buffers.back()["boxes"].push_back({split->second.begin, extent, split->second.num_replicas});
    }
  }
  return buffers;
}

void verify_sharding_matches(const model::Blocks& blocks, const comm::DeviceMesh& mesh) {
  const int group_size = mesh.layout().shape()[comm::MeshDim::kTp];
  if (group_size == 1) return;
  const std::string own = to_line(describe(blocks, mesh));
  std::vector<Json> descriptions;
  for (const std::string& text :
       comm::all_gather_strings(own, "how layers are shared", mesh.cpu_group())) {
    descriptions.push_back(parse_json(text, {.name = "a rank's description of its blocks"}));
  }
  for (size_t rank = 0; rank < descriptions.size(); ++rank) {
    const auto refused = descriptions[rank].find("refused");
    if (refused == descriptions[rank].end()) continue;
    throw Error("rank {}: {}", rank, refused->get<std::string>());
  }
  // Mesh dim tp is the last one, so that ranks that share layers are neighbors.
  for (auto first = descriptions.begin(); first < descriptions.end(); first += group_size) {
    ShardingCheck({first, first + group_size}, static_cast<size_t>(first - descriptions.begin()))
        .check();
  }
}

}  // namespace zeroth::engine
