// A Group over any c10d backend (Gloo, NCCL).
#pragma once

#include <memory>
#include <string>

#include "comm/group.h"

namespace c10d {
class Backend;
}

namespace zeroth::comm {

// `name` ("data") appears in errors. Takes shared ownership of the backend.
std::unique_ptr<Group> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend, std::string name);

}  // namespace zeroth::comm
