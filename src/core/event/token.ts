/**
 * Consistency tokens: what a writer gets and a reader shows, to never see anything older than that write.
 *
 * To its holder a token is opaque text, safe in a URL or a header. Inside are the service and the environment that made it, the
 * aggregate and its version. With a secret it is signed (HMAC-SHA-256) and names its key, so that nobody can make readers wait for
 * versions that do not exist. A token of another service or environment is refused, signed or not.
 */
import { createHash, createHmac } from 'node:crypto'
import { WaybillError } from '../errors.ts'
import { isEqualSecret } from '../equal-secret.ts'
import { refuseUnknown } from '../options.ts'
import { assertStrongSecret } from '../secret.ts'
import { parseVersion, type Version } from './version.ts'

/** What a token says: this aggregate had this version when the write committed. */
export interface AggregateVersion {
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: Version
}

export interface Tokens {
  /** The opaque text of an aggregate's version. */
  encode(at: AggregateVersion): string
  /** What the token says, or INVALID_INPUT if it is malformed, forged, or of another service, environment or key. */
  decode(token: string): AggregateVersion
}

export interface TokenOptions {
  /** Signs tokens. The first secret signs, all verify: put a new one in front to rotate. 32 random bytes as base64 each. @default unsigned */
  readonly secrets?: readonly string[]
  /** The service that writes what the tokens are about. Its readers say the same. Needed with secrets. @default '' */
  readonly service?: string
  /** `production`, `staging`: tokens of another one are refused, also with the same secret. Needed with secrets. @default '' */
  readonly environment?: string
  /** Other services whose tokens are read here, for a consumer of several. @default [] */
  readonly alsoFrom?: readonly string[]
}

/** The header that carries the consistency token, both ways. */
export const tokenHeader = 'waybill-token'

const format = 'w2'
const longestToken = 4096

/** The maker and reader of tokens. All services that exchange tokens need the same secrets and the same environment. */
export function createTokens(options: TokenOptions = {}): Tokens {
  refuseUnknown('tokens', options, ['secrets', 'service', 'environment', 'alsoFrom'])
  const { service = '', environment = '', alsoFrom = [] } = options
  checkNames(options)
  const keys = new Map(checkSecrets(options.secrets).map((secret) => [keyIdOf(secret), secret]))
  const [signing] = keys
  const services = new Set([service, ...alsoFrom])
  return {
    encode: ({ aggregateType, aggregateId, version }) => {
      const said = [service, environment, aggregateType, aggregateId, String(parseVersion(version))]
      const body = `${format}.${Buffer.from(JSON.stringify(said)).toString('base64url')}`
      const token = signing === undefined ? body : signed(`${body}.${signing[0]}`, signing[1])
      if (token.length > longestToken) throw tooLong(aggregateType, token.length)
      return token
    },
    decode: (token) => {
      const parts = typeof token === 'string' && token.length <= longestToken ? token.split('.') : []
      const [known, body, keyId, signature] = parts
      if (known === 'w1') throw invalid('it was made by an older version of Waybill')
      if (known !== format || body === undefined || (parts.length !== 2 && parts.length !== 4))
        throw invalid('it is not one of ours')
      if (keys.size > 0) {
        const secret = keys.get(keyId ?? '')
        if (signature === undefined) throw invalid('its signature is missing or wrong')
        if (secret === undefined) throw invalid('it is signed with a key that is not known here')
        if (!isEqualSecret(token, signed(`${format}.${body}.${keyId}`, secret)))
          throw invalid('its signature is missing or wrong')
      }
      const { service: from, environment: where, ...at } = parseBody(body)
      if (!services.has(from) || where !== environment) throw invalid('it is of another service or environment')
      return at
    },
  }
}

/** Signed tokens without these two would be taken in staging and in production alike, and from every service with the secret. */
function checkNames({ secrets, service, environment, alsoFrom = [] }: TokenOptions): void {
  const isName = (name: unknown): boolean => typeof name === 'string' && /^[\w.-]{1,63}$/.test(name)
  for (const [option, name] of Object.entries({ service, environment })) {
    if (name === undefined ? secrets === undefined : isName(name)) continue
    throw new WaybillError(
      'INVALID_OPTION',
      `tokens.${option}: signed tokens need one, of letters, digits, ".", "_" or "-", at most 63; the same for writers and readers.`,
    )
  }
  if (!Array.isArray(alsoFrom) || !alsoFrom.every(isName))
    throw new WaybillError('INVALID_OPTION', 'tokens.alsoFrom: must be a list of names of services.')
}

/** A list that came out empty is refused: whoever wrote it believes that tokens are signed. */
function checkSecrets(secrets: readonly string[] | undefined): readonly string[] {
  if (secrets === undefined) return []
  if (!Array.isArray(secrets) || secrets.length === 0) {
    throw new WaybillError(
      'INVALID_OPTION',
      'tokens.secrets: must be a list of at least one secret; leave it out for unsigned tokens.',
    )
  }
  for (const secret of secrets) assertStrongSecret('tokens.secrets', secret)
  return [...secrets]
}

function parseBody(body: string): AggregateVersion & { readonly service: string; readonly environment: string } {
  let parts: unknown
  try {
    parts = JSON.parse(Buffer.from(body, 'base64url').toString('utf8'))
  } catch (cause) {
    throw invalid('it cannot be read', cause)
  }
  if (!Array.isArray(parts) || parts.length !== 5) throw invalid('it cannot be read')
  const [service, environment, aggregateType, aggregateId, version] = parts as unknown[]
  if (typeof service !== 'string' || typeof environment !== 'string') throw invalid('it names no service')
  if (typeof aggregateType !== 'string' || typeof aggregateId !== 'string') throw invalid('it names no aggregate')
  return { service, environment, aggregateType, aggregateId, version: parseVersion(version, 'consistency token') }
}

/** Tells keys apart without telling anything of them. */
function keyIdOf(secret: string): string {
  return createHash('sha256').update(`waybill token key\n${secret}`).digest('base64url').slice(0, 8)
}

function signed(text: string, secret: string): string {
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`
}

function tooLong(aggregateType: string, length: number): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `The consistency token of ${aggregateType} would have ${length} characters, more than ${longestToken}. Use a shorter aggregate id.`,
  )
}

function invalid(why: string, cause?: unknown): WaybillError {
  return new WaybillError('INVALID_INPUT', `Consistency token refused: ${why}. Pass the token as the write returned it.`, {
    cause,
  })
}
