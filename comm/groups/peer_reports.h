// Peer status reports: ranks whose wait lasts publish what they wait for through the run's store,
// so that other nodes see who is missing. Without long waits nothing is written, and no thread
// runs.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nodes/nodes.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// PeerReports is safe to call from any thread.
class PeerReports {
 public:
  // `limit` is the time limit of a collective. The store's keys that begin with "told/" must be
  // unused.
  PeerReports(c10::intrusive_ptr<c10d::Store> store, int rank, Nodes nodes,
              std::chrono::milliseconds limit);

  // Reports that this rank has waited for `waited`. Publishes `text` after a quarter of the limit,
  // at most 5 s, and again at that interval.
  void report_wait(std::chrono::milliseconds waited, const std::function<std::string()>& text);
  // Withdraws this rank's report, because the wait has ended well.
  void clear();
  // Reports that this rank gives up.
  void report_failure(const std::string& text);

  // Returns for a person what these global ranks have reported and, for silent ones, what the other
  // ranks of their node have reported. Waits up to 2 s for it.
  std::string reports_from(const std::vector<int>& ranks);

 private:
  // Returns the text that `work` gets from the store; empty if the store does not answer, which is
  // then not asked again.
  template <typename Work>
  std::string ask_store(Work work);
  // Writes this rank's report. The caller holds mutex_.
  void report(const std::string& text);
  // Returns the report of `rank`, sanitized for a message; empty if there is none.
  std::string read(int rank);

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  Nodes nodes_;
  std::chrono::milliseconds report_interval_;
  std::chrono::milliseconds next_;  // wait after which the rank reports again
  bool has_reported_ = false;
  bool store_answers_ = true;
};

}  // namespace zeroth::comm
