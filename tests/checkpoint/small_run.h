// A run of a few tensors that saves, as the engine does it, and a look at what can be loaded.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/find.h"
#include "checkpoint/reader.h"
#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/stored.h"

namespace zeroth::checkpoint {

inline std::vector<WholeState> small_model() {
  std::vector<WholeState> states;
  for (const char* const state : {"master", "exp_avg"}) {
    states.push_back({"a", state, "F32", {6, 4}});
    states.push_back({"b", state, "F32", {5}});
  }
  return states;
}

// Even ranges over the ranks of each state; the last rank has the rest.
inline std::vector<Piece> pieces_of(const std::vector<WholeState>& model, int rank, int size) {
  std::vector<Piece> pieces;
  for (const WholeState& state : model) {
    Piece piece = Piece::whole(state.tensor, state.state, state.dtype, state.shape);
    const int64_t all = piece.elements();
    piece.range = {all * rank / size, all * (rank + 1) / size};
    pieces.push_back(piece);
  }
  return pieces;
}

// Saves a model whose values depend on `salt`.
inline Committed save(Saver& saver, Ranks& ranks, int64_t step, int64_t salt) {
  Save save = saver.begin(step, 1000);
  Contribution mine;
  save.stage("writing", [&] {
    const std::vector<Piece> pieces = pieces_of(small_model(), ranks.rank(), ranks.size());
    PieceFile file = save.piece_file(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<float> values = values_of(pieces[i], salt);
      file.write(i, std::as_bytes(std::span(values)));
    }
    mine.files.push_back(file.finish(save.piece_file_name()));
  });
  return save.commit(mine, {.must_equal = {{"model", "small"}}, .counters = {{"salt", salt}}},
                     small_model());
}

// The salt of the newest checkpoint that is complete, all of whose values are read and right; -1
// where there is none.
inline int64_t load_newest(const std::shared_ptr<Disk>& disk) {
  const auto all = list_checkpoints(*disk);
  const Found* found = newest(all);
  if (found == nullptr) return -1;
  Reader reader(disk, found->name);
  const int64_t salt = std::get<int64_t>(reader.manifest().counters.at("salt"));
  for (const WholeState& state : small_model()) {
    const Piece whole = Piece::whole(state.tensor, state.state, state.dtype, state.shape);
    std::vector<float> values(static_cast<size_t>(whole.elements()));
    reader.read(state.tensor, state.state, whole.box, whole.range,
                std::as_writable_bytes(std::span(values)));
    if (values != values_of(whole, salt)) throw Damaged("{} has other values", found->name);
  }
  if (!reader.unused().empty()) throw Damaged("{} has unused pieces", found->name);
  return salt;
}

inline std::vector<std::string> names_in(Disk& disk, const std::string& folder = "") {
  std::vector<std::string> names;
  for (const Entry& entry : disk.list(folder)) names.push_back(entry.name);
  return names;
}

// Names that are neither checkpoints nor `latest` nor the owner.
inline std::vector<std::string> temporary_names(Disk& disk) {
  std::vector<std::string> names = names_in(disk);
  std::erase_if(names, [](const std::string& name) {
    return step_of(name) || name == kLatest || epoch_of_owner(name);
  });
  return names;
}

// Three saves of one rank: steps 4, 8 and 12, with salts of the same numbers.
inline std::shared_ptr<FakeDisk> three_saves() {
  auto disk = std::make_shared<FakeDisk>();
  OneRank one;
  Saver saver(disk, one, {.run_id = "run", .keep = 0});
  for (const int64_t step : {4, 8, 12}) save(saver, one, step, step);
  return disk;
}

}  // namespace zeroth::checkpoint
