/** The encoder of a browser: a vector to a private code, with secret bits of WebCrypto. */

import { Codebook, hexadecimal, sha256 } from "./codebook.js";
import { drawSymbol, uniformShare } from "./law.js";
import { check, readSpec } from "./spec.js";

const FRAME_BYTES = 52;
const VERSION = 2;

/** Turns vectors into codes under one spec. Every code of a vector spends epsilon once more. */
export class Encoder {
  /**
   * @param {string} specText The text of the published `spec.json`.
   * @param {ArrayBuffer} codebookBytes The published codewords, 32-bit floats.
   * @param {number} maxEpsilon The largest epsilon that the owner of the vectors accepts.
   * @throws {InputError} For a spec or codebook that is not what it should be.
   */
  static async open(specText, codebookBytes, maxEpsilon) {
    const spec = readSpec(specText, maxEpsilon);
    const codebook = await Codebook.open(spec, codebookBytes);
    const fingerprint = (await sha256(specText.trim())).subarray(0, 16);
    return new Encoder(spec, codebook, fingerprint);
  }

  constructor(spec, codebook, fingerprint) {
    this.codebook = codebook;
    this.fingerprint = fingerprint;
    this.law = { size: spec.size, subset: spec.subset, uniform: uniformShare(spec) };
  }

  /**
   * The private code of a vector: a symbol, the number of a codeword.
   *
   * @param {ArrayLike<number>} vector `dim` finite numbers; the direction counts.
   * @throws {InputError} For anything else.
   */
  encode(vector) {
    const similarities = this.codebook.similarities(vector);
    const words = crypto.getRandomValues(new BigUint64Array(3));
    const symbol = drawSymbol(this.law, similarities, words);
    words.fill(0n);
    return symbol;
  }

  /** Symbols as the bytes that `dpindex add INDEX FILE` reads. */
  async toBytes(symbols) {
    const { size } = this.law;
    const isSymbol = (symbol) => Number.isInteger(symbol) && symbol >= 0 && symbol < size;
    check(symbols.every(isSymbol), `symbols must be whole numbers from 0 to ${size - 1}.`);
    const fingerprint = hexadecimal(this.fingerprint);
    const facts = { code_length: 1, fingerprint, format: "symbols", size };
    const arrays = [["stored", "<u2", [symbols.length, 1]]];
    const header = new TextEncoder().encode(JSON.stringify({ arrays, facts, kind: "codes" }));
    const body = new DataView(new ArrayBuffer(2 * symbols.length));
    symbols.forEach((symbol, i) => body.setUint16(2 * i, symbol, true));
    const frame = new DataView(new ArrayBuffer(FRAME_BYTES));
    new Uint8Array(frame.buffer).set(new TextEncoder().encode("DPIX"));
    frame.setUint16(4, VERSION, true);
    frame.setUint32(8, header.length, true);
    frame.setBigUint64(12, BigInt(body.byteLength), true);
    new Uint8Array(frame.buffer).set(await sha256(header, body), 20);
    return new Uint8Array(await new Blob([frame, header, body]).arrayBuffer());
  }
}
