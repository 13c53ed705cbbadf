/** Outlast from TypeScript: thin functions over the SQL functions, and the receiving end of a push. */
export type { Claimed, ClaimOptions, Failed, FailureClass, RegisterOptions } from "./claim.js";
export type { Database, PgDatabase, PgTransaction, PostgresDatabase, PostgresTransaction, Tx } from "./connection.js";
export type { Accepted, Body, Common, JsonBody, NewEvent, NewEvents } from "./emit.js";
export { type Attempt, type Envelope, Unreadable, attempt, envelope } from "./envelope.js";
export {
  AlreadySealed, BadId, BadName, BadPayload, Conflict, ConsumerGone, Expired, Held, LeaseLost, Misconfigured, NotAllowed,
  NotInClaim, NotMigrated, NoTransaction, OutlastError, Standby, Stopped, TooLarge, UnknownConsumer, Unsendable,
  WrongTransaction,
} from "./errors.js";
export type { HeadersLike } from "./headers.js";
export { Outlast, claim, complete, emit, emitAll, fail, fence, register, renew, work } from "./outlast.js";
export { BadKey, NotVerified, type Verified, type VerifyOptions, verify } from "./webhook.js";
export { Failure, type WorkOptions } from "./work.js";
