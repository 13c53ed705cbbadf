/** Headers, in whatever shape a server hands them on. */

/** Of node:http (`req.headers`), of fetch (`Headers`), a Map, or pairs. Names count in any case. */
export type HeadersLike =
  | Iterable<readonly [string, string]>
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** Each header with its name in lower case, as often as it was given. */
export function pairs(headers: HeadersLike): [string, string][] {
  const given = isIterable(headers) ? [...headers] : Object.entries(headers);
  return given.flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((one): [string, string] => [name.toLowerCase(), one]),
  );
}

function isIterable(headers: HeadersLike): headers is Iterable<readonly [string, string]> {
  return Symbol.iterator in headers;
}
