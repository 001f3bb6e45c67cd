// Host memory that the simulated GPU copies from and to while the host goes on. From and to all
// other memory it copies before the host does, as a driver does.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>

namespace zeroth::simulated {

class PinnedPages {
 public:
  static PinnedPages& get();

  void lock(std::span<std::byte> memory);
  // Of exactly what lock() took. Ends the process with a message if a copy still uses it: to unlock
  // memory under a copy is an error of the program.
  void unlock(std::span<std::byte> memory) noexcept;
  // Unlocks and frees memory of malloc when no copy uses it any more.
  void free_when_idle(void* memory) noexcept;
  bool contains(const void* memory) const;

  // A copy that is queued. Throws unless all of the memory is locked.
  void copy_queued(const void* memory, size_t bytes);
  void copy_ended(const void* memory);

 private:
  struct Pages {
    const std::byte* end;
    int copies = 0;  // under way
    bool free_when_idle = false;
  };
  using Map = std::map<const std::byte*, Pages>;
  Map::const_iterator find(const void* memory) const;

  mutable std::mutex mutex_;
  Map pages_;  // by their begin
};

}  // namespace zeroth::simulated
