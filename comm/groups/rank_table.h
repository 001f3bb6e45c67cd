// The last operations of each rank of a node, in memory that all of them share. Error messages use
// them to explain which rank is late, and why, if a collective times out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/groups/members.h"
#include "comm/nodes/shared_segment.h"

namespace zeroth::comm {

// A RankRow is one rank's row. Only that rank writes it.
struct alignas(64) RankRow {
  std::atomic<uint64_t> issued;     // index of the last collective that the rank began, from 1
  std::atomic<uint64_t> finished;   // index of the last collective that the rank saw end
  std::atomic<int64_t> changed_ns;  // CLOCK_MONOTONIC time of the last change of either
  std::atomic<int32_t> pid;
  std::atomic<bool> left;                     // the rank has closed its group
  std::array<std::array<char, 200>, 2> last;  // description of collective k at [k % 2]
};

class RankTable {
 public:
  static constexpr size_t bytes(int size) { return sizeof(RankRow) * static_cast<size_t>(size); }

  // Uses the beginning of the segment, which the table keeps alive, for the rows. Throws an Error
  // if another process is `rank` already.
  RankTable(std::shared_ptr<SharedSegment> segment, int rank, int size, Members members = {});
  ~RankTable();  // marks this rank as left
  RankTable(const RankTable&) = delete;
  RankTable& operator=(const RankTable&) = delete;

  void issue(uint64_t sequence, std::string_view description);
  void finish(uint64_t sequence);

  // Returns whether the rank has its group open and its process runs, as far as is known.
  bool is_alive(int rank) const;

  // Returns a description of the last operation of `rank` for a person.
  std::string last(int rank) const { return describe(rank, UINT64_MAX); }

  // Returns "rank 1 is gone" if a rank is not alive that has not begun collective `sequence`; else
  // empty.
  std::string lost_before(uint64_t sequence) const;

  // Explains for a collective that does not end which ranks arrived, which did not, what these did
  // last and whether they are suspended or gone. `late`: ranks known to delay it; ranks that did
  // not begin `sequence` are added here.
  std::string explain(uint64_t sequence, const std::vector<int>& late) const;

 private:
  std::string describe(int rank, uint64_t sequence) const;

  std::shared_ptr<SharedSegment> segment_;
  std::span<RankRow> rows_;
  int rank_;
  Members members_;
};

}  // namespace zeroth::comm
