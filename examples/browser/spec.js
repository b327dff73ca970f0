/** The public spec of `record-codebook`, checked before a vector is looked at. */

/** Wrong input, in one sentence. */
export class InputError extends Error {}

/** Throw an InputError unless `condition` holds. */
export function check(condition, sentence) {
  if (!condition) throw new InputError(sentence);
}

const MAX_TEXT = 1 << 16;

/** Attributes up to which the squares of a vector on the grid add exactly. */
const MAX_DIM = 8192;

/** Fields that this method takes one value of. */
const FIXED = {
  format: 1, method: "record-codebook", k: 1, delta: 0, repetitions: 1, scale: 1,
  bounds: [-1, 1], clip: false, min_norm: null, norm: null,
};

const FIELDS = [...Object.keys(FIXED), "adjacency", "codebook", "dim", "epsilon", "seed", "subset"];

/**
 * The parameters of a spec, from the text of the `spec.json` that the index's holder published.
 *
 * @param {string} text Exactly as dpindex wrote it: its digest marks the codes.
 * @param {number} maxEpsilon The largest epsilon that the owner of the vector accepts.
 * @returns {{dim: number, epsilon: number, size: number, subset: number, digest: string}}
 *   There are `size` codewords of that SHA-256 `digest`; the `subset` nearest are likelier.
 * @throws {InputError} For anything else than a spec of `record-codebook`, or one above maxEpsilon.
 */
export function readSpec(text, maxEpsilon) {
  const short = typeof text === "string" && text.length <= MAX_TEXT;
  check(short, `the spec must be a text of at most ${MAX_TEXT} characters.`);
  const spec = parsed(text);
  check(isObject(spec), "the spec must be an object with fields.");
  for (const name of Object.keys(spec)) {
    check(FIELDS.includes(name), `the spec has an unknown field ${name}.`);
  }
  for (const name of FIELDS) {
    check(Object.hasOwn(spec, name), `the spec lacks ${name}; take it as dpindex writes it.`);
  }
  for (const [name, value] of Object.entries(FIXED)) {
    const expected = JSON.stringify(value);
    check(JSON.stringify(spec[name]) === expected, `${name} of the spec must be ${expected} here.`);
  }
  checkAdjacency(spec.adjacency);
  checkCodebook(spec.codebook);
  const { dim, epsilon, subset, codebook } = spec;
  checkWhole("dim", dim, 1, MAX_DIM);
  checkWhole("seed", spec.seed, 0, 2 ** 63);
  check(codebook.dim === dim, "the codebook must have as many attributes as the spec.");
  checkWhole("subset", subset, 1, codebook.size - 1);
  const allowed = typeof epsilon === "number" && epsilon >= 1e-3 && epsilon <= 64;
  check(allowed, "epsilon must be a number in [0.001, 64].");
  check(
    typeof maxEpsilon === "number" && epsilon <= maxEpsilon,
    `the spec promises epsilon = ${epsilon}, where at most ${maxEpsilon} is accepted.`,
  );
  return { dim, epsilon, size: codebook.size, subset, digest: codebook.sha256 };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new InputError("the spec is not valid JSON.");
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function checkAdjacency(adjacency) {
  const whole = isObject(adjacency) && adjacency.kind === "record";
  check(whole, "adjacency must be that of whole records.");
  const { kind, unit = "vector", ...others } = adjacency;
  const known = ["vector", "person"].includes(unit) && Object.keys(others).length === 0;
  check(known, "the unit of a record must be vector or person.");
}

function checkCodebook(codebook) {
  const named = isObject(codebook) && Object.keys(codebook).sort().join() === "dim,sha256,size";
  check(named, "codebook must be {sha256, size, dim}.");
  const digest = typeof codebook.sha256 === "string" && /^[0-9a-f]{64}$/.test(codebook.sha256);
  check(digest, "sha256 of the codebook must be 64 hexadecimal digits.");
  checkWhole("size of the codebook", codebook.size, 2, 1 << 16);
}

function checkWhole(name, value, low, high) {
  const whole = Number.isInteger(value) && value >= low && value <= high;
  check(whole, `${name} must be a whole number from ${low} to ${high}.`);
}
