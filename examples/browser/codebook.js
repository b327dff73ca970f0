/** The public codewords on an integer grid, where inner products are exact on every machine. */

import { check } from "./spec.js";

const RADIUS = 4095;
const STEPS = 2 ** 20;
const TO_WHOLE = 1.5 * 2 ** 52;

/** The nearest whole number of a double below 2^51, ties to the even one. */
function roundToEven(value) {
  return value + TO_WHOLE - TO_WHOLE;
}

/** The direction of a vector as whole numbers of norm about 4095; a zero vector stays zero. */
function onSphereGrid(vector) {
  const wide = Float64Array.from(vector);
  const largest = wide.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  if (largest === 0) return wide;
  const whole = wide.map((value) => roundToEven((value / largest) * STEPS));
  const norm = Math.sqrt(whole.reduce((sum, value) => sum + value * value, 0));
  return whole.map((value) => Math.trunc((value * RADIUS) / norm));
}

/** Bytes as hexadecimal digits. */
export function hexadecimal(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The SHA-256 of bytes. */
export async function sha256(...parts) {
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/** Codewords c_1 … c_K. */
export class Codebook {
  /**
   * @param {object} spec What `readSpec` returned.
   * @param {ArrayBuffer} bytes The codewords as 32-bit floats, little-endian.
   * @throws {InputError} For other codewords than those that the spec names.
   */
  static async open(spec, bytes) {
    const { size, dim, digest } = spec;
    const complete = bytes.byteLength === 4 * size * dim;
    check(complete, `the codebook must have ${size} x ${dim} numbers of 4 bytes.`);
    const found = hexadecimal(await sha256(`${size}x${dim}|`, bytes));
    check(found === digest, "this is another codebook than the one that the spec names.");
    return new Codebook(spec, bytes);
  }

  constructor({ size, dim }, bytes) {
    const view = new DataView(bytes);
    this.size = size;
    this.dim = dim;
    this.grid = new Float32Array(size * dim);
    for (let row = 0; row < size; row += 1) {
      const codeword = new Float64Array(dim);
      for (let i = 0; i < dim; i += 1) codeword[i] = view.getFloat32(4 * (row * dim + i), true);
      this.grid.set(onSphereGrid(codeword), row * dim);
    }
  }

  /** Throw an InputError unless this is a vector of `dim` finite numbers. */
  checkVector(vector) {
    const listed = Array.isArray(vector) || ArrayBuffer.isView(vector);
    check(listed && vector.length === this.dim, `a vector must be a list of ${this.dim} numbers.`);
    for (let i = 0; i < this.dim; i += 1) {
      check(Number.isFinite(vector[i]), `attribute ${i} is not a finite number.`);
    }
  }

  /** Inner products of a vector's direction with all codewords: whole numbers, about 4095² cos. */
  similarities(vector) {
    this.checkVector(vector);
    const { dim, grid, size } = this;
    const direction = onSphereGrid(vector);
    const similarities = new Float64Array(size);
    for (let row = 0; row < size; row += 1) {
      let sum = 0;
      for (let i = 0; i < dim; i += 1) sum += direction[i] * grid[row * dim + i];
      similarities[row] = sum;
    }
    return similarities;
  }
}
