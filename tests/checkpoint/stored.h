// Checkpoints of tests: tensors with known values, written in any layout.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/coverage.h"
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_file.h"

namespace zeroth::checkpoint {

// The value of an element: the same for everybody who knows its state and place. `salt` tells one
// save from another.
inline float value_of(const std::string& state, int64_t global, int64_t salt = 0) {
  return static_cast<float>(global * 16 + static_cast<int64_t>(state.size()) + 1000 * salt);
}

// Where an element of a part is in the whole tensor.
inline int64_t global_of(const Shape& shape, const Box& box, int64_t element) {
  int64_t global = 0, stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const int64_t extent = box.end[i] - box.begin[i];
    global += (box.begin[i] + element % extent) * stride;
    element /= extent;
    stride *= shape[i];
  }
  return global;
}

// Of an F32 piece.
inline std::vector<float> values_of(const Piece& piece, int64_t salt = 0) {
  std::vector<float> values;
  for (int64_t i = piece.range.begin; i < piece.range.end; ++i) {
    values.push_back(value_of(piece.state, global_of(piece.shape, piece.box, i), salt));
  }
  return values;
}

inline StoredFile write_pieces(Disk& disk, const std::string& folder, int64_t rank,
                               const std::vector<Piece>& pieces, int64_t salt = 0) {
  const std::string name = piece_file_name(rank);
  PieceFile file(disk, joined(folder, name), pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<float> values = values_of(pieces[i], salt);
    file.write(i, std::as_bytes(std::span(values)));
  }
  return file.finish(name);
}

// A checkpoint without the protocol of a save.
inline Manifest write_checkpoint(Disk& disk, const std::string& folder,
                                 const std::vector<std::vector<Piece>>& ranks) {
  disk.make_folder(folder);
  disk.make_folder(joined(folder, std::string(kPieceFolder)));
  Manifest manifest{.step = 8, .run_id = "run", .attempt = "1.1"};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    manifest.files.push_back(write_pieces(disk, folder, static_cast<int64_t>(rank), ranks[rank]));
  }
  write_text(disk, joined(folder, std::string(kManifest)), text_of(manifest));
  return manifest;
}

// Consecutive ranges of a whole tensor.
inline std::vector<Piece> split(const std::string& tensor, const std::string& state,
                                const Shape& shape, const std::vector<int64_t>& counts) {
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    Piece piece = Piece::whole(tensor, state, "F32", shape);
    piece.range = {begin, begin + count};
    begin += count;
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace zeroth::checkpoint
