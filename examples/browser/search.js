/** Search of downloaded codes: the query never leaves this machine. */

import { nearest } from "./law.js";
import { check } from "./spec.js";

/** Rows that an index may have here: a 32-bit number and a row then fit into one double. */
const MAX_ROWS = 2 ** 21;

/** A public permutation of 32-bit numbers: rows of one symbol tie, and come in this order. */
function mixed(row) {
  const folded = row ^ (row >>> 16);
  const product = Math.imul(folded, 0x9e3779b1);
  return (product ^ (product >>> 16)) >>> 0;
}

/** The codes of an index, in one list of rows for each symbol. */
export class CodeSearch {
  /**
   * @param {Codebook} codebook What the codes stand for.
   * @param {ArrayBuffer} bytes The codes, 2 bytes a record, little-endian.
   * @throws {InputError} For a symbol beyond the codebook.
   */
  constructor(codebook, bytes) {
    check(bytes.byteLength % 2 === 0, "the codes are cut off: they take 2 bytes each.");
    check(bytes.byteLength <= 2 * MAX_ROWS, `at most ${MAX_ROWS} codes are searched here.`);
    const view = new DataView(bytes);
    const symbols = new Uint16Array(bytes.byteLength / 2);
    for (let row = 0; row < symbols.length; row += 1) symbols[row] = view.getUint16(2 * row, true);
    check(symbols.every((symbol) => symbol < codebook.size), "a code is beyond the codebook.");
    this.codebook = codebook;
    this.count = symbols.length;
    this.starts = new Uint32Array(codebook.size + 1);
    for (const symbol of symbols) this.starts[symbol + 1] += 1;
    for (let i = 0; i < codebook.size; i += 1) this.starts[i + 1] += this.starts[i];
    const order = new Float64Array(this.count);
    for (let row = 0; row < this.count; row += 1) order[row] = mixed(row) * MAX_ROWS + row;
    const ends = this.starts.slice();
    this.rows = new Uint32Array(this.count);
    for (const key of order.sort()) {
      const row = key % MAX_ROWS;
      const symbol = symbols[row];
      this.rows[ends[symbol]] = row;
      ends[symbol] += 1;
    }
  }

  /**
   * Rows whose codes are nearest to a query, the nearest first.
   *
   * @param {ArrayLike<number>} query `dim` finite numbers.
   * @param {number} count
   * @returns {Uint32Array} At most `count` row numbers.
   */
  candidates(query, count) {
    const similarities = this.codebook.similarities(query);
    const found = new Uint32Array(Math.min(count, this.count));
    let filled = 0;
    for (const symbol of nearest(similarities, this.codebook.size)) {
      if (filled === found.length) break;
      const stop = Math.min(this.starts[symbol + 1], this.starts[symbol] + found.length - filled);
      const rows = this.rows.subarray(this.starts[symbol], stop);
      found.set(rows, filled);
      filled += rows.length;
    }
    return found;
  }

  /**
   * The `count` best of `candidates` rows, in the order of whoever holds the vectors.
   *
   * @param {(rows: Uint32Array) => ArrayLike<number> | Promise<ArrayLike<number>>} rerank
   *   A score for each row, higher is nearer.
   * @returns {Promise<{row: number, score: number}[]>} The best first.
   */
  async search(query, { count = 10, candidates = 1000, rerank }) {
    const rows = this.candidates(query, candidates);
    const scores = await rerank(rows);
    check(scores.length === rows.length, "rerank must return one score for each row.");
    const hits = Array.from(rows, (row, i) => ({ row, score: scores[i] }));
    return hits.sort((one, other) => other.score - one.score).slice(0, count);
  }
}
