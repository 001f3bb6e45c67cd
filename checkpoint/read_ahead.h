// Fetches what follows of a file while its reader looks at what it has.
#pragma once

#include <memory>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// `file` for one thread that reads it from its begin towards its end, whole or with gaps. Another
// thread reads it block by block (TransferBuffer::kBytes): the one that is asked for and, where
// reads follow each other, the next ones, too. A small read elsewhere goes to `file`. What `file`
// throws for a block, the reads of it throw. A file of one block stays as it is.
std::unique_ptr<RandomAccessFile> read_ahead(std::unique_ptr<RandomAccessFile> file);

}  // namespace zeroth::checkpoint
