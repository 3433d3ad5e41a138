import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

import { commands } from './commands.ts'
import { runCommand } from '../../scripts/run-command.ts'
import { runLine, type Ended } from '../../test/setup/run-line.ts'

let folder = ''

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-cli-'))
})

afterAll(() => rm(folder, { recursive: true }))

const cli = (line: string, env: Readonly<Record<string, string>> = {}): Promise<Ended> => runLine(line, { folder, env })

describe('help', () => {
  test('names every command, on stdout', async () => {
    const { code, out, err } = await cli('--help')
    expect({ code, err }).toEqual({ code: 0, err: '' })
    for (const words of Object.keys(commands)) expect(out).toContain(words)
  })

  test.each(Object.entries(commands))('of %s names its options', async (words, command) => {
    const { code, out } = await cli(`${words} --help`)
    expect(code).toBe(0)
    for (const option of Object.keys(command.options)) expect(out).toContain(`--${option}`)
  })

  test('is what an unfinished command line gets, as a mistake', async () => {
    expect(await cli('')).toMatchObject({ code: 2, out: '', err: expect.stringContaining('migrate up') })
    expect(await cli('migrate')).toMatchObject({ code: 2, out: '', err: expect.stringContaining('migrate adopt') })
    expect(await cli('migrate --help')).toMatchObject({ code: 0, err: '' })
  })
})

test('the version is the one of the package', async () => {
  expect(await cli('--version')).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) })
  expect(JSON.parse((await cli('--version --json')).out)).toEqual({ version: expect.any(String) })
})

describe('a slip is answered with what was meant', () => {
  test.each([
    ['migrat up', 'There is no command "migrat". Did you mean "migrate"? See: waybill --help'],
    ['migrate upp', 'There is no command "migrate upp". Did you mean "migrate up"? See: waybill migrate --help'],
    ['migrate up now', '"migrate up" takes no argument "now".'],
    ['migrate up --servce x', 'Unknown option --servce. Did you mean --service? See: waybill migrate up --help'],
    ['migrate up --service', '--service needs a value: --service <name>.'],
    ['migrate up --service --roles', '--service needs a value'],
    ['outbox drop --all --yes --database-url=', '--database-url is empty. Give it a value, or leave it out.'],
    ['migrate up --roles=yes', '--roles takes no value.'],
    ['migrate up --roles extra', 'Unexpected argument "extra".'],
    ['migrate up --service x', 'Which database? Pass --database-url'],
    ['migrate up', 'Which service owns the schema? Pass --service'],
    ['rebuild --from earliest --service x', 'Which consumer? Name it behind the command.'],
    ['migrate sql --service x --schema public', 'schema: "public" cannot be used'],
    ['migrate sql --service x --after two', '--after needs the number of a migration'],
    ['migrate up --service x --database-url mysql://u:secret@host/db', 'The database URL is not one of Postgres'],
  ])('%s', async (line, message) => {
    const { code, out, err } = await cli(line)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(message)
    expect(err).not.toContain('secret')
  })
})

describe('a database that does not answer', () => {
  const unreachable = 'migrate status --database-url postgres://app:s3cr3t@127.0.0.1:1/shop'

  test('is named without its password, and without a stack', async () => {
    const { code, out, err } = await cli(unreachable)
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toBe(
      'The database at app@127.0.0.1:1/shop refused the connection. Is it running, and is that its port? Check the database URL.\n',
    )
  })

  test('may be a socket', async () => {
    const { code, err } = await cli(`migrate status --database-url postgres://app:s3cr3t@/shop?host=${folder}`)
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(`The database at app@${folder}:5432/shop`) })
    expect(err).not.toContain('s3cr3t')
  })

  test('is shown with a stack when asked, still without its password', async () => {
    const { err } = await cli(`${unreachable} --verbose`)
    expect(err).toContain('ECONNREFUSED')
    expect(err).not.toContain('s3cr3t')
  })

  test('is an object for programs', async () => {
    const { err } = await cli(`${unreachable} --json`)
    expect(JSON.parse(err)).toEqual({ error: { code: 'UNAVAILABLE', message: expect.stringContaining('127.0.0.1:1') } })
  })
})

test('a password in the message of others is not printed', async () => {
  await writeFile(
    join(folder, 'telling.ts'),
    `throw new Error('cannot use postgres://app:s3cr3t@s3cr3t@db/shop?password=s3cr3t')`,
  )
  const { err } = await cli('migrate status --config telling.ts')
  expect(err).toContain('cannot use postgres://app:***@db/shop?password=***')
  expect(err).not.toContain('s3cr3t')
})

test('a password that is also a name leaves the data alone', async () => {
  const { out } = await cli('migrate sql --service orders', { DATABASE_URL: 'postgres://waybill:waybill@db/waybill' })
  expect(out).toBe((await cli('migrate sql --service orders')).out)
  expect(out).toContain('create table "waybill".migration')
})

describe('settings', () => {
  const config = `export default { service: 'from-config' as string, schema: 'configured', database: { url: 'postgres://configured:1/x' } }`

  test('come from the configuration, and are overridden by the environment and then by options', async () => {
    await writeFile(join(folder, 'waybill.config.ts'), config)
    const fromConfig = await cli('migrate sql')
    expect(fromConfig.out).toContain(`the schema "configured" of the service "from-config"`)
    const fromEnv = await cli('migrate sql', { WAYBILL_SERVICE: 'from-env' })
    expect(fromEnv.out).toContain(`the schema "configured" of the service "from-env"`)
    const fromOption = await cli('migrate sql --service from-option --schema chosen', { WAYBILL_SERVICE: 'from-env' })
    expect(fromOption.out).toContain(`the schema "chosen" of the service "from-option"`)
    expect((await cli('migrate status')).err).toContain('configured:1')
    await rm(join(folder, 'waybill.config.ts'))
  })

  test.each([
    ['misspelt.ts', `export default { servce: 'x' }`, 'waybill.config.servce: unknown option. Did you mean "service"?'],
    ['empty.ts', 'export {}', 'has no default export'],
    ['broken.ts', 'throw new Error("no luck")', 'could not be loaded: no luck'],
  ])('of %s are refused with the reason', async (file, content, message) => {
    await writeFile(join(folder, file), content)
    expect(await cli(`migrate sql --config ${file}`)).toMatchObject({ code: 2, err: expect.stringContaining(message) })
  })

  // As a process of its own: in here modules are loaded by the runner of the tests, which takes everything for ES modules.
  test.each([
    ['an import', `import 'node:path'\nexport default { service: 'x' }`],
    ['an export', `export default { service: 'x' }`],
  ])('of a CommonJS package that begin with %s are refused with the advice to make it one of ES modules', async (_, content) => {
    const commonJs = await mkdtemp(join(folder, 'commonjs-'))
    await writeFile(join(commonJs, 'package.json'), JSON.stringify({ type: 'commonjs' }))
    await writeFile(join(commonJs, 'waybill.config.ts'), content)
    const main = fileURLToPath(new URL('main.ts', import.meta.url))
    const { code, output } = await runCommand(['node', main, 'migrate', 'sql'], { cwd: commonJs })
    expect(output).toContain('. Node takes it for CommonJS: add "type": "module" to package.json')
    expect(code).toBe(2)
  })

  test('of a file that is not there are refused', async () => {
    expect(await cli('migrate sql --config nowhere.ts')).toMatchObject({
      code: 2,
      err: expect.stringContaining('no configuration file'),
    })
  })
})
