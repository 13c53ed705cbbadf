/** Verifying a push: Standard Webhooks signatures (v1, HMAC-SHA256) over the bytes as they came. */
import { createHmac, timingSafeEqual } from "node:crypto";

import { OutlastError } from "./errors.js";
import { type HeadersLike, pairs } from "./headers.js";

/** This request was not signed with any of the keys, or was changed, or is too old. Answer 401, and do not say why. */
export class NotVerified extends OutlastError {}

/** A key that is none: a matter of your configuration, not of the request. */
export class BadKey extends OutlastError {}

export interface VerifyOptions {
  /** How many seconds the sender's clock and ours may differ, either way. Default 300. */
  tolerance?: number | undefined;
  /** What time it is. Default: now. */
  now?: Date | undefined;
}

export interface Verified {
  /** The same at every attempt. */
  id: string;
  /** When this attempt was signed. */
  timestamp: Date;
}

const ID = "webhook-id";
const TIMESTAMP = "webhook-timestamp";
const SIGNATURE = "webhook-signature";
/** A shorter key could be guessed. */
const KEY_BYTES = 16;

/**
 * Verifies that a request was signed with one of these keys (`whsec_…`; several while they are rotated) a short time ago.
 *
 * @param body The bytes as they came, before any parser.
 * @throws {NotVerified} when it was not; {@link BadKey} when a key cannot be one.
 */
export function verify(
  headers: HeadersLike,
  body: Uint8Array | string,
  keys: readonly string[],
  { tolerance = 300, now = new Date() }: VerifyOptions = {},
): Verified {
  if (keys.length === 0) throw new BadKey("there is no key to verify with");
  const secrets = keys.map(secret);
  const id = single(headers, ID);
  const at = single(headers, TIMESTAMP);
  const given = single(headers, SIGNATURE).split(" ");
  // A full stop parts what is signed.
  if (id === "" || id.includes(".")) throw new NotVerified(`${ID} cannot be read`);
  if (!/^[0-9]{1,12}$/.test(at)) throw new NotVerified(`${TIMESTAMP} cannot be read`);
  const age = Math.floor(now.getTime() / 1000) - Number(at);
  if (Math.abs(age) > tolerance) throw new NotVerified(`signed ${age} seconds ago, ${tolerance} are allowed`);

  let matches = false;
  for (const key of secrets) {
    const expected = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest();
    for (const signature of given) {
      const bytes = signature.startsWith("v1,") ? decoded(signature.slice(3)) : undefined;
      // All of them are looked at, so that the time it takes says nothing about which one it was.
      if (bytes?.length === expected.length && timingSafeEqual(bytes, expected)) matches = true;
    }
  }
  if (!matches) throw new NotVerified("no signature fits any of the keys");
  return { id, timestamp: new Date(Number(at) * 1000) };
}

/** A header that must be there once: who sends it twice wants two readers to see different things. */
function single(headers: HeadersLike, name: string): string {
  const values = pairs(headers).filter(([known]) => known === name);
  // Servers join what came twice.
  if (values.length > 1 || values[0]?.[1].includes(", ")) throw new NotVerified(`${name} is there twice`);
  const value = values[0]?.[1];
  if (value === undefined) throw new NotVerified(`${name} is missing`);
  return value;
}

function secret(key: string): Buffer {
  const bytes = key.startsWith("whsec_") ? decoded(key.slice("whsec_".length)) : undefined;
  if (!bytes || bytes.length < KEY_BYTES) throw new BadKey(`a key is whsec_ and base64 of at least ${KEY_BYTES} bytes`);
  return bytes;
}

/** Strictly: Node passes over what is no base64. Padding may be left out. */
function decoded(text: string): Buffer | undefined {
  const bare = text.replace(/={1,2}$/, "");
  return /^[A-Za-z0-9+/]*$/.test(bare) && bare.length % 4 !== 1 ? Buffer.from(bare, "base64") : undefined;
}
