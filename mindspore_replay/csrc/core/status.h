// Return values of kernels: 0, or the reason why nothing was done. ops/native.py holds the same numbers.
#pragma once

namespace replay {

enum Status : int {
  kOk = 0,
  kBadArguments = 1,     // number, dtype or shape of an argument
  kTooFewRows = 2,       // fewer rows than the draw needs
  kIndexOutOfRange = 3,  // a position or slot that holds no row
  kBadWeight = 4,        // a priority, weight or beta that is negative, NaN or infinite, or beyond its range
  kTooLong = 5,          // an episode longer than allowed
  kTooMany = 6,          // more columns or outputs than one launch on a GPU supports
  kDeviceError = 7,      // CUDA refused a launch or ran out of memory; its message went to stderr
  kNoLock = 8,           // CPU: the buffer in shared memory was closed, or its lock is not usable
  kOpenEpisode = 9,      // CPU: the newest rows are an open episode of another process
  kFull = 10,            // no room for new rows: rows that can still be drawn would be evicted
  kBadVersion = 11,      // the version of a new row is negative, or newer than the clock
  kNoDisk = 12,          // CPU: a page of the files of a folder could not be read or written
  kBadLength = 13,       // CPU: a row of any length with fewer or more items than it may have
  kNoFolder = 14,        // CPU: the folder of the buffer was deleted
  kNotYet = 15,          // CPU: the limits of the buffer let no such rows in or out yet
  kEarlier = 16,         // added to the status of an earlier call, refused on the GPU after it had returned
};

// Returns why a kernel failed, in the words of store/kernels/library.py; null if it refused its arguments.
inline const char *ReasonOf(Status status) {
  switch (status) {
    case kTooFewRows: return "fewer rows are eligible than a sample needs";
    case kIndexOutOfRange: return "an index is out of range: no row is stored there";
    case kBadWeight: return "a priority, weight or beta is negative, NaN or infinite, or beyond its range";
    case kTooLong: return "an episode would have more rows than it may have";
    case kNoLock: return "the buffer was closed, or the lock in the memory of its folder is not usable";
    case kOpenEpisode:
      return "the newest rows are an open episode of another process: each process must insert whole episodes, whose "
             "last row comes with end=True; end_episodes() ends an episode whose process is gone";
    case kFull: return "there is no room: rows would be evicted that can still be drawn";
    case kBadVersion: return "a version is negative, or newer than the learner's clock";
    case kNoDisk:
      return "the disk could not read or write a page of the folder: what is in memory is not what was there";
    case kBadLength: return "a length is negative or above longest, or a call has more items than there is memory for";
    case kNoFolder:
      return "the folder was deleted, and its rows are in memory alone: save() them elsewhere before the buffer is closed";
    default: return nullptr;
  }
}

}  // namespace replay
