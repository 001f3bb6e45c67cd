// Reads ahead in a file while its reader processes the current bytes.
#pragma once

#include <memory>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// Wraps `file` for one thread that reads it from start to end, with or without gaps. Another thread
// reads it block by block (TransferBuffer::kBytes): the requested block and, if reads are
// sequential, the next ones. A small read elsewhere goes directly to `file`. A read of a block
// throws what `file` threw for it. Returns a file of one block unchanged.
std::unique_ptr<RandomAccessFile> read_ahead(std::unique_ptr<RandomAccessFile> file);

}  // namespace zeroth::checkpoint
