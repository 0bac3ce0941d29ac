#pragma once

#include <sys/types.h>

#include <cstddef>

namespace headrace {

// sendmsg without waiting and without SIGPIPE; a descriptor (-1: none) travels with the first byte. As send(): bytes
// sent, or -1 and errno.
ssize_t SendWithFd(int socket, const void* data, size_t size, int fd);

}  // namespace headrace
