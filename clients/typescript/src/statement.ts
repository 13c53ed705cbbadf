/** The arguments of one statement, for any driver: all of them go out as text, and every row comes back as one text. */
import { BadName, BadPayload } from "./errors.js";

/** A statement of ours: rows of one text column. */
export interface Statement {
  text: string;
  values: string[];
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The arguments that are given, by name, all as text; what no text of PostgreSQL can hold is refused before it is sent. */
export class Arguments {
  readonly values: string[] = [];
  readonly #names: string[] = [];

  text(name: string, value: string | undefined): void {
    this.cast(name, value, undefined);
  }

  uuid(name: string, value: string | undefined): void {
    if (value !== undefined && !UUID.test(value)) throw new BadName(`${name} ${JSON.stringify(value)} is not a UUID`);
    this.cast(name, value, "uuid");
  }

  integer(name: string, value: number | bigint | undefined, type: "int" | "bigint"): void {
    if (typeof value === "number" && !Number.isSafeInteger(value)) throw new BadName(`${name} ${value} is not an integer`);
    const bits = type === "int" ? 32 : 64;
    if (value !== undefined && BigInt.asIntN(bits, BigInt(value)) !== BigInt(value)) {
      throw new BadName(`${name} ${value} does not fit ${bits} bits`);
    }
    this.cast(name, value?.toString(), type);
  }

  bytes(name: string, value: Uint8Array | undefined): void {
    if (value === undefined) return;
    this.#put(name, (at) => `decode(${at}, 'hex')`, Buffer.from(value).toString("hex"));
  }

  /** Not as an array: not every driver knows how to send one. */
  texts(name: string, values: readonly (string | null)[]): void {
    for (const value of values) if (value !== null) refuseUnstorable(name, value);
    this.#put(name, (at) => `array(select json_array_elements_text(${at}::json))`, JSON.stringify(values));
  }

  cast(name: string, value: string | undefined, type: string | undefined): void {
    if (value === undefined) return;
    refuseUnstorable(name, value);
    this.#put(name, (at) => (type ? `${at}::${type}` : at), value);
  }

  /** The call with these arguments: `outlast.emit(type => $1::text, …)`. */
  call(name: string): string {
    return `${name}(${this.#names.join(", ")})`;
  }

  #put(name: string, expression: (at: string) => string, value: string): void {
    this.#names.push(`${name} => ${expression(`$${this.values.push(value)}::text`)}`);
  }
}

/** Drivers would send half a surrogate pair as another character, and PostgreSQL has no NUL in a text. */
function refuseUnstorable(name: string, value: string): void {
  const why = value.includes("\0") ? "a NUL character" : value.isWellFormed() ? undefined : "half a surrogate pair";
  if (!why) return;
  const message = `${name} holds ${why}, which PostgreSQL cannot store`;
  throw name.startsWith("payload") ? new BadPayload(message) : new BadName(message);
}
