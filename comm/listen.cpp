#include "comm/listen.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/process_limits.h"

namespace zeroth::comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw Error("MASTER_ADDR={}: {}", address, gai_strerror(error));
  return {found, &freeaddrinfo};
}

// -1 with errno when it cannot be.
FileDescriptor try_listen(const addrinfo& address) {
  FileDescriptor fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  const bool listens = fd.get() >= 0 &&
                       ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
                       ::bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       ::listen(fd.get(), SOMAXCONN) == 0;
  if (listens) return fd;
  const int cause = errno;
  fd.close();
  errno = cause;
  return FileDescriptor();
}

}  // namespace

FileDescriptor listen_at(const std::string& address, int port) {
  const Addresses found = resolve(address, port);
  int cause = 0;
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    FileDescriptor fd = try_listen(*entry);
    if (fd.get() >= 0) return fd;
    if (cause != EADDRINUSE) cause = errno;
  }
  if (cause == EADDRINUSE)
    throw Error("MASTER_PORT={} of {} is taken by another program", port, address);
  if (cause == EADDRNOTAVAIL)
    throw Error("MASTER_ADDR={} is not an address of this machine, where rank 0 runs", address);
  throw Error("cannot listen at {}:{}: {}", address, port, system_reason(cause));
}

}  // namespace zeroth::comm
