// Writes a file while its writer prepares the next bytes.
#pragma once

#include <memory>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// Wraps `file`, which will have `size` bytes, for a writer that writes mostly sequentially. Copies
// the bytes and collects them up to the end of a block (TransferBuffer::kBytes), which another
// thread then writes. A later call throws what `file` threw, at the latest sync() or close(), which
// then do nothing else. If the file is destroyed before that, pending bytes may or may not be
// written. Returns a file of one block unchanged.
std::unique_ptr<WritableFile> write_behind(std::unique_ptr<WritableFile> file, int64_t size);

}  // namespace zeroth::checkpoint
