// Writes a file while its writer prepares what comes next.
#pragma once

#include <memory>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// `file`, which will have `size` bytes, for who writes it mostly from one byte to the next. What is
// written is copied and gathered up to the end of a block (TransferBuffer::kBytes), which another
// thread then writes. What `file` throws is thrown by a later call, at the latest by sync() and
// close(), which then do nothing else. What is given up before these may be written or not. A file
// of one block stays as it is.
std::unique_ptr<WritableFile> write_behind(std::unique_ptr<WritableFile> file, int64_t size);

}  // namespace zeroth::checkpoint
