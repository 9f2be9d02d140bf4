#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace ringback::bindings {

// Counts the forks on the way to this process: locks and threads do not survive one.
inline unsigned process_generation() noexcept {
    static std::atomic<unsigned> generation{0};
#if defined(__unix__) || defined(__APPLE__)
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(registered);
#endif
    return generation.load(std::memory_order_relaxed);
}

// A value that threads reach only through read(f) and write(f): many readers or one writer at a time.
//
// Interpreter::Released is a scope in which the interpreter's lock is given up (the tests pass one that does nothing).
// f must not touch Python: arguments are converted and outputs allocated before.
//
//   small calls (moved < kLarge bytes)  keep the interpreter's lock and try for ours; only if that fails is the
//                                       interpreter's lock given up to wait. Giving it up in every small call is a
//                                       convoy: beside one busy Python thread each call would wait a switch interval.
//   large calls                         give up the interpreter's lock first, and let go of ours before taking it back.
//
// Nobody ever waits for our lock with the interpreter's lock held. All pass a gate before the shared lock, in turn, so
// that readers who come and go cannot keep a writer out.
//
// Errors: std::runtime_error in a forked child.
template <class T, class Interpreter>
class Guarded {
  public:
    static constexpr std::size_t kLarge = std::size_t{1} << 20;

    template <class... Args>
    explicit Guarded(Args&&... args) : generation_(process_generation()), value_(std::forward<Args>(args)...) {}

    template <class F>
    auto read(std::size_t moved, F&& f) const {
        return locked<std::shared_lock<std::shared_mutex>>(
            moved, [&]() -> decltype(auto) { return f(std::as_const(value_)); });
    }

    template <class F>
    auto write(std::size_t moved, F&& f) {
        return locked<std::unique_lock<std::shared_mutex>>(moved, [&]() -> decltype(auto) { return f(value_); });
    }

  private:
    template <class Lock, class F>
    auto locked(std::size_t moved, F&& f) const {
        if (process_generation() != generation_)
            throw std::runtime_error("a buffer must be used by the process that made it, got a call in a forked child");
        if (moved < kLarge) {
            if (std::unique_lock gate(gate_, std::try_to_lock); gate.owns_lock()) {
                if (Lock lock(mutex_, std::try_to_lock); lock.owns_lock()) {
                    gate.unlock();
                    return f();
                }
            }
        }
        const typename Interpreter::Released released;
        std::unique_lock gate(gate_);
        const Lock lock(mutex_);
        gate.unlock();
        return f();
    }

    unsigned generation_;
    mutable std::mutex gate_;
    mutable std::shared_mutex mutex_;
    T value_;
};

}  // namespace ringback::bindings
