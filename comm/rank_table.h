// What each rank of a host did last, in memory that all of them share: who is late, and why, is
// answered from it when a collective does not end.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/members.h"
#include "comm/shared_segment.h"

namespace zeroth::comm {

// One rank's row. Written by that rank only.
struct alignas(64) RankRow {
  std::atomic<uint64_t> issued;     // number of the last collective that the rank began, from 1
  std::atomic<uint64_t> finished;   // number of the last one whose end the rank has seen
  std::atomic<int64_t> changed_ns;  // CLOCK_MONOTONIC of either
  std::atomic<int32_t> pid;
  std::atomic<bool> left;                     // it has closed its group
  std::array<std::array<char, 200>, 2> last;  // description of collective k at [k % 2]
};

class RankTable {
 public:
  static constexpr size_t bytes(int size) { return sizeof(RankRow) * static_cast<size_t>(size); }

  // The rows lie at the beginning of the segment, which the table keeps alive. Throws an Error
  // where another process is `rank` already.
  RankTable(std::shared_ptr<SharedSegment> segment, int rank, int size, Members members = {});
  ~RankTable();  // this rank has left
  RankTable(const RankTable&) = delete;
  RankTable& operator=(const RankTable&) = delete;

  void issue(uint64_t sequence, std::string_view description);
  void finish(uint64_t sequence);

  // The rank has closed its group or its process has ended.
  bool lost(int rank) const;

  // What `rank` did last, for a person.
  std::string last(int rank) const { return describe(rank, UINT64_MAX); }

  // "rank 1 is gone" where a rank is lost that has not begun collective `sequence`; else empty.
  std::string lost_before(uint64_t sequence) const;

  // For a collective that does not end: which ranks arrived, which did not, what these did last and
  // whether they are stopped or gone. `late`: ranks known to hold it up; those that did not begin
  // `sequence` are found here.
  std::string explain(uint64_t sequence, const std::vector<int>& late) const;

 private:
  std::string describe(int rank, uint64_t sequence) const;

  std::shared_ptr<SharedSegment> segment_;
  std::span<RankRow> rows_;
  int rank_;
  Members members_;
};

}  // namespace zeroth::comm
