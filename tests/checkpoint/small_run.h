// A run of a few tensors that saves, as the engine does it, and a look at what can be loaded.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/find.h"
#include "checkpoint/reader.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/stored.h"

namespace zeroth::checkpoint {

inline std::vector<StoredState> small_model() {
  std::vector<StoredState> states;
  for (const char* const state : {"master", "exp_avg"}) {
    states.push_back({"a", state, "F32", {6, 4}});
    states.push_back({"b", state, "F32", {5}});
  }
  return states;
}

// Even ranges over the ranks of each state; the last rank has the rest.
inline std::vector<TensorChunk> pieces_of(const std::vector<StoredState>& model, int rank,
                                          int size) {
  std::vector<TensorChunk> chunks;
  for (const StoredState& state : model) {
    TensorChunk chunk = TensorChunk::full(state.tensor, state.state, state.dtype, state.shape);
    const int64_t all = chunk.elements();
    chunk.range = {all * rank / size, all * (rank + 1) / size};
    chunks.push_back(chunk);
  }
  return chunks;
}

// Saves a model whose values depend on `salt`.
inline CommitResult save(Saver& saver, RankGroup& ranks, int64_t step, int64_t salt) {
  Save save = saver.begin(step, 1000);
  RankManifest mine;
  save.run_phase("writing", [&] {
    const std::vector<TensorChunk> chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
    ChunkFile file = save.chunk_file(chunks);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const std::vector<float> values = values_of(chunks[i], salt);
      file.write(i, std::as_bytes(std::span(values)));
    }
    mine.files.push_back(file.finish(save.chunk_file_name()));
  });
  return save.commit(mine, {.must_equal = {{"model", "small"}}, .counters = {{"salt", salt}}},
                     small_model());
}

// The salt of the newest checkpoint that is complete, all of whose values are read and right; -1
// where there is none.
inline int64_t load_newest(const std::shared_ptr<FileSystem>& file_system) {
  const auto all = list_checkpoints(*file_system);
  const CheckpointInfo* found = newest(all);
  if (found == nullptr) return -1;
  CheckpointReader reader(file_system, found->name);
  const int64_t salt = std::get<int64_t>(reader.manifest().counters.at("salt"));
  for (const StoredState& state : small_model()) {
    const TensorChunk whole =
        TensorChunk::full(state.tensor, state.state, state.dtype, state.shape);
    std::vector<float> values(static_cast<size_t>(whole.elements()));
    reader.read(state.tensor, state.state, whole.slice, whole.range,
                std::as_writable_bytes(std::span(values)));
    if (values != values_of(whole, salt))
      throw CorruptCheckpoint("{} has other values", found->name);
  }
  if (!reader.unused().empty()) throw CorruptCheckpoint("{} has unused pieces", found->name);
  return salt;
}

inline std::vector<std::string> names_in(FileSystem& file_system,
                                         const std::string& directory = "") {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : file_system.list(directory)) names.push_back(entry.name);
  return names;
}

// Names that are neither checkpoints nor `latest` nor the owner.
inline std::vector<std::string> temporary_names(FileSystem& file_system) {
  std::vector<std::string> names = names_in(file_system);
  std::erase_if(names, [](const std::string& name) {
    return parse_step(name) || name == kLatest || parse_owner_generation(name);
  });
  return names;
}

// Three saves of one rank: steps 4, 8 and 12, with salts of the same numbers.
inline std::shared_ptr<FaultyFileSystem> three_saves() {
  auto file_system = std::make_shared<FaultyFileSystem>();
  SingleRankGroup one;
  Saver saver(file_system, one, {.run_id = "run", .keep = 0});
  for (const int64_t step : {4, 8, 12}) save(saver, one, step, step);
  return file_system;
}

}  // namespace zeroth::checkpoint
