// The log of flushes, which store/folder/flushed.py describes. An entry is a record, then pieces of the state and of the
// columns: begin and bytes of each, and what it holds, up to the end of a word.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/checksum.h"
#include "core/items.h"

namespace replay {

struct FlushRecord {
  int64_t number, closed, inserted, updates;
  int64_t size;   // bytes of the pieces
  int64_t check;  // their checksum
  int64_t own;    // that of the numbers before
};

// A part of each row: in a column, or, with references to them, items in an arena.
struct RowPart {
  char *memory;
  int64_t bytes;  // of a row, or of an item
  int64_t items;
  const Reference *references;

  // Adds the part of a row to its checksum. One whose items cannot be in the arena adds nothing.
  uint64_t Add(int64_t slot, uint64_t sum) const {
    if (references == nullptr) return Checksum(memory + slot * bytes, bytes, sum);
    const Arena arena = {memory, items, bytes};
    const Reference &row = references[slot];
    return arena.Holds(row) ? Checksum(arena.At(row), arena.Bytes(row), sum) : sum;
  }
};

// A piece of the state and the columns, of which the second begin where the first ends.
struct Piece {
  int64_t begin, bytes;

  int64_t Padded() const { return (bytes + 7) / 8 * 8; }
};

struct FlushedMemory {
  char *state;
  int64_t state_bytes;
  char *columns;
  int64_t columns_bytes;

  char *At(int64_t place) const { return place < state_bytes ? state + place : columns + (place - state_bytes); }
  bool Has(const Piece &piece) const {
    if (piece.begin < 0 || piece.bytes < 0) return false;
    const int64_t end = piece.begin < state_bytes ? state_bytes : state_bytes + columns_bytes;
    return piece.begin <= end && piece.bytes <= end - piece.begin;
  }
};

class LogEntry {
 public:
  // The numbers in the record are set but for the last three.
  LogEntry(char *memory, int64_t room)
      : begin_(memory), at_(memory + sizeof(FlushRecord)), end_(memory + room), has_room_(at_ <= end_) {}

  void Put(const FlushedMemory &memory, const Piece &piece) {
    has_room_ = has_room_ && end_ - at_ >= static_cast<int64_t>(sizeof(Piece)) + piece.Padded();
    if (!has_room_) return;
    std::memset(at_ + sizeof(Piece) + piece.Padded() - 8, 0, piece.bytes > 0 ? 8 : 0);
    std::memcpy(at_, &piece, sizeof(Piece));
    std::memcpy(at_ + sizeof(Piece), memory.At(piece.begin), static_cast<size_t>(piece.bytes));
    at_ += sizeof(Piece) + piece.Padded();
  }

  // Returns its bytes, or 0 if it had too little room.
  int64_t Finish() const {
    if (!has_room_) return 0;
    FlushRecord *record = reinterpret_cast<FlushRecord *>(begin_);
    const char *pieces = begin_ + sizeof(FlushRecord);
    record->size = at_ - pieces;
    record->check = static_cast<int64_t>(Checksum(pieces, record->size, 0));
    record->own = static_cast<int64_t>(Checksum(begin_, offsetof(FlushRecord, own), 0));
    return at_ - begin_;
  }

 private:
  char *begin_;
  char *at_;
  char *end_;
  bool has_room_;
};

constexpr int64_t kFlushedLine = 64;

// Copies the lines in a range that differ, and calls put(begin, bytes) with each run of them.
template <typename Put>
void CopyDifferences(const char *from, char *to, int64_t begin, int64_t end, const Put &put) {
  constexpr int64_t kPage = 4096;
  int64_t first = -1;
  const auto end_run = [&](int64_t at) {
    if (first >= 0) put(Piece{first, at - first});
    first = -1;
  };
  for (int64_t page = begin; page < end; page += kPage) {
    const int64_t page_end = std::min(page + kPage, end);
    const bool differs = std::memcmp(from + page, to + page, static_cast<size_t>(page_end - page)) != 0;
    for (int64_t line = page; line < (differs ? page_end : page); line += kFlushedLine) {
      if (std::memcmp(from + line, to + line, kFlushedLine) == 0) {
        end_run(line);
        continue;
      }
      std::memcpy(to + line, from + line, kFlushedLine);
      if (first < 0) first = line;
    }
    if (!differs) end_run(page);
  }
  end_run(end);
}

// Copies what changed from the state to its image, and writes that and the changed rows to an entry.
// `arrays` are those of which only changed rows have changed, by their begin and the bytes of a row; `unknown` bytes of
// the state come before them.
inline void TakeChanges(const FlushedMemory &memory, char *image, int64_t unknown, const Piece *arrays,
                        int64_t n_arrays, const int64_t *slots, int64_t n, LogEntry *entry) {
  const FlushedMemory flushed = {image, memory.state_bytes, memory.columns, memory.columns_bytes};
  const auto put = [&](const Piece &piece) { entry->Put(flushed, piece); };
  CopyDifferences(memory.state, image, 0, unknown, put);
  for (int64_t i = 0, next = 0; i < n; i = next) {
    for (next = i + 1; next < n && slots[next] == slots[next - 1] + 1;) ++next;
    for (int64_t j = 0; j < n_arrays; ++j) {
      const int64_t begin = arrays[j].begin + slots[i] * arrays[j].bytes, bytes = (next - i) * arrays[j].bytes;
      if (begin >= memory.state_bytes) {
        put({begin, bytes});
      } else {
        const int64_t end = (begin + bytes + kFlushedLine - 1) / kFlushedLine * kFlushedLine;
        CopyDifferences(memory.state, image, begin / kFlushedLine * kFlushedLine, end, put);
      }
    }
  }
}

// Copies the pieces of an entry to where they belong, or only checks that there is such a place for each.
inline bool ReplayPieces(const FlushedMemory &memory, const char *pieces, int64_t bytes, bool copy) {
  for (const char *end = pieces + bytes; pieces != end;) {
    Piece piece;
    if (end - pieces < static_cast<int64_t>(sizeof(Piece))) return false;
    std::memcpy(&piece, pieces, sizeof(Piece));
    pieces += sizeof(Piece);
    if (!memory.Has(piece) || end - pieces < piece.Padded()) return false;
    if (copy) std::memcpy(memory.At(piece.begin), pieces, static_cast<size_t>(piece.bytes));
    pieces += piece.Padded();
  }
  return true;
}

}  // namespace replay
