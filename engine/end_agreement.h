// One rank's wish to end what all ranks are at becomes the wish of all, at the same point of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "comm/mesh.h"

namespace zeroth::engine {

class EndAgreement {
 public:
  // `wish`: this rank's, asked often and from the calling thread; empty: it has none.
  EndAgreement(const comm::Mesh& mesh, std::function<bool()> wish)
      : mesh_(mesh), wish_(std::move(wish)) {}

  // To be called at the same points on all ranks. True, on all of them alike and from then on: some
  // rank wished it. Ranks ask each other at the first points and then every tenth of a second or
  // so, by the pace of the slowest: where points follow quickly most of them cost nothing.
  // Collective.
  bool reached();

 private:
  bool own_wish() const { return wish_ && wish_(); }
  void ask();

  const comm::Mesh& mesh_;
  std::function<bool()> wish_;
  bool ended_ = false;
  int64_t stride_ = 1;       // points between two questions
  int64_t points_left_ = 0;  // until the next one
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace zeroth::engine
