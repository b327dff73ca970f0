/**
 * Codebook response in whole numbers, equal to dpindex/mechanism/noise/symbols.py.
 *
 * With chance γ the symbol is uniform on all K codewords, else on the w nearest to the vector. For
 * γ = K / (w·(e^ε - 1) + K) no symbol is more than e^ε times as likely under one vector as under
 * another.
 */

const POWER_BITS = 160n;
const FRACTION_BITS = 416n;
const EXACT_BITS = 70;
const ONE = 1n << 64n;

/**
 * ⌊e^ε·2^160⌋ or one less: never above e^ε·2^160.
 *
 * @param {number} epsilon In [0.001, 64].
 */
export function powerBelow(epsilon) {
  // A double above 2^-10 is a multiple of 2^-62, so this is exact.
  const exponent = BigInt(epsilon * 2 ** EXACT_BITS) << (FRACTION_BITS - BigInt(EXACT_BITS));
  let sum = 0n;
  let term = 1n << FRACTION_BITS;
  for (let n = 1n; term > 0n; n += 1n) {
    sum += term;
    term = (term * exponent) / (n << FRACTION_BITS); // rounded down, like every term before
  }
  return sum >> (FRACTION_BITS - POWER_BITS);
}

const roundedUp = (whole, divisor) => (whole + divisor - 1n) / divisor;

/** The chance γ of a uniform symbol times 2^64, the rounding of all draws counted. */
export function uniformShare({ epsilon, size, subset }) {
  const all = BigInt(size);
  const most = roundedUp(ONE, BigInt(subset));
  const apart = (most - roundedUp(ONE, all)) << POWER_BITS;
  return roundedUp((ONE * most) << POWER_BITS, powerBelow(epsilon) * (ONE / all) + apart);
}

/**
 * The `count` codewords of largest similarity, ties to the smaller number.
 *
 * @param {Float64Array} similarities Whole numbers in [-2^24, 2^24], one a codeword.
 * @returns {Uint32Array} Numbers of codewords, the nearest first.
 */
export function nearest(similarities, count) {
  const keys = similarities.map((similarity, symbol) => (2 ** 24 - similarity) * 2 ** 16 + symbol);
  return Uint32Array.from(keys.sort().subarray(0, count), (key) => key % 2 ** 16);
}

/** ⌊word·limit/2^64⌋ for a word of 64 bits. */
function drawBelow(limit, word) {
  return Number((word * BigInt(limit)) >> 64n);
}

/**
 * The symbol that three secret words of 64 bits make of a vector's similarities.
 *
 * @param {{size: number, subset: number, uniform: bigint}} law
 * @param {Float64Array} similarities
 * @param {BigUint64Array} words
 */
export function drawSymbol({ size, subset, uniform }, similarities, words) {
  const chosen = nearest(similarities, subset)[drawBelow(subset, words[1])];
  const any = drawBelow(size, words[2]);
  return words[0] < uniform ? any : chosen;
}
