/**
 * The files of deploy/ say what the CLI says, in the form that their own tools want, and keep what the guides promise.
 */
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { repositoryRoot, runCommand } from '../../scripts/run-command.ts'
import { findProgram } from '../../src/testing/process/find-program.ts'

const deploy = join(repositoryRoot, 'deploy')
const read = (path: string): Promise<string> => readFile(join(deploy, path), 'utf8')

test('what the CLI makes is as the CLI makes it now', async () => {
  const { code, output } = await runCommand(['node', 'scripts/deploy-files.ts', '--check'])
  expect(output).toBe('')
  expect(code).toBe(0)
})

test('Terraform names every topic, subscription, dead letter and grant once, and no role is given on the project', async () => {
  const text = await terraform('.', 'pubsub', 'relay-schedule')
  const resources = [...text.matchAll(/^resource "(\w+)" "(\w+)"/gm)].map(([, type, name]) => `${type}.${name}`)
  expect(new Set(resources).size).toBe(resources.length)
  expect(resources).toEqual(
    expect.arrayContaining([
      'google_pubsub_topic.video_events',
      'google_pubsub_topic.video_events_catalog_dead',
      'google_pubsub_subscription.video_events_catalog',
      'google_pubsub_subscription.video_events_catalog_dead_catalog',
      'google_service_account.video_relay',
      'google_service_account.catalog',
    ]),
  )
  expect(resources.filter((name) => name.startsWith('google_project_iam'))).toEqual([])
  const accounts = [...text.matchAll(/serviceAccount:([\w-]+)@shop\.iam/g)].map((match) => match[1])
  const made = [...text.matchAll(/account_id += "([\w-]+)"/g)].map((match) => match[1])
  expect(accounts.filter((account) => !made.includes(account))).toEqual([])
  // Where Terraform is, it must find nothing to change; it cannot know Google's resources without their provider.
  if (findProgram('terraform') === undefined) return
  const { code, output } = await runCommand(['terraform', 'fmt', '-check', '-diff', '-recursive', join(deploy, 'terraform')])
  expect({ code, changed: output.match(/^[+-].*$/gm) ?? [] }).toEqual({ code: 0, changed: [] })
})

test('Terraform makes accounts before the grants that name them, and asks for nothing that a later step makes', async () => {
  const module = /module "pubsub" \{[^}]*depends_on = \[([^\]]*)\]/.exec(await terraform('.'))?.[1]?.split(', ')
  const named = [...(await terraform('pubsub')).matchAll(/serviceAccount:([\w-]+)@shop\.iam/g)].map((match) => match[1] ?? '')
  expect(new Set(named.map((account) => `google_service_account.${account.replaceAll('-', '_')}`))).toEqual(new Set(module))
  // The services and the job of Cloud Run come from their own files, when the accounts are there.
  expect(await terraform('.', 'pubsub')).not.toContain('google_cloud_run')
})

test('Cloud Monitoring watches every subscription, and each of its alerts has a section in the runbook', async () => {
  const alerts = await read(join('terraform', 'alerts.tf'))
  const subscriptions = [...(await terraform('pubsub')).matchAll(/"google_pubsub_subscription" [^}]*?name += "([\w.]+)"/g)]
  const watched = [...alerts.matchAll(/subscription_id = \\"([\w.]+)\\"[^\n]*oldest_unacked_message_age/g)]
  expect(watched.map((match) => match[1])).toEqual(subscriptions.map((match) => match[1]))
  const runbook = await readFile(join(repositoryRoot, 'docs', 'guides', 'runbook.md'), 'utf8')
  const names = [...alerts.matchAll(/^  display_name += "(\w+)"/gm)].map((match) => match[1] ?? '')
  expect([...runbook.matchAll(/^### (Pubsub\w+)$/gm)].map((match) => match[1])).toEqual(names)
  const addresses = [...alerts.matchAll(/runbook\.md#(\w+)/g)].map((match) => match[1])
  expect(addresses).toEqual(names.map((name) => name.toLowerCase()))
})

async function terraform(...folders: readonly string[]): Promise<string> {
  const files = folders.flatMap((folder) => readdirSync(join(deploy, 'terraform', folder)).map((file) => join(folder, file)))
  const texts = files.filter((file) => file.endsWith('.tf')).map((file) => read(join('terraform', file)))
  return (await Promise.all(texts)).join('\n')
}

test.each(['catalog-service.yaml', 'relay-service.yaml'])(
  '%s has CPU between requests, instances at all times, and probes',
  async (file) => {
    const text = await read(join('cloud-run', file))
    expect(text).toContain("run.googleapis.com/cpu-throttling: 'false'")
    expect(Number(/minScale: '(\d+)'/.exec(text)?.[1])).toBeGreaterThanOrEqual(1)
    expect(text).toMatch(/startupProbe:[\s\S]*livenessProbe:/)
    expect(text).toContain('secretKeyRef:')
  },
)

test('the catalog asks for health by gRPC, on the HTTP/2 port that it serves', async () => {
  const text = await read(join('cloud-run', 'catalog-service.yaml'))
  expect(text).toMatch(/name: h2c\n\s+containerPort: 8080/)
  expect(text.match(/grpc:\n\s+port: 8080\n\s+service: liveness/g)).toHaveLength(2)
})

test('the arguments of containers are commands that there are', async () => {
  const texts = await Promise.all(['relay-service.yaml', 'relay-job.yaml'].map((file) => read(join('cloud-run', file))))
  for (const text of texts) {
    const words = JSON.parse(
      (/args:\s*(\[[^\]]*\])/.exec(text)?.[1] ?? '[]').replaceAll("'", '"').replace(/,\s*\]/, ']'),
    ) as string[]
    expect(words.slice(0, 2)).toEqual(['node_modules/.bin/waybill', 'relay'])
    const { output } = await runCommand(['node', 'src/cli/main.ts', 'relay', '--help'])
    for (const option of words.filter((word) => word.startsWith('--'))) expect(output).toContain(`  ${option}`)
  }
})

test('what is installed here does not cover what the image has installed', async () => {
  expect(await read('Dockerfile')).toMatch(/RUN npm ci[\s\S]*COPY \. \./)
  expect((await read('Dockerfile.dockerignore')).split('\n')).toContain('**/node_modules')
  expect((await read('Dockerfile.dockerignore')).split('\n')).toContain('**/.env*')
  // Its base image is by digest or not at all.
  expect(await read('Dockerfile')).toMatch(
    /^ARG NODE_IMAGE\nFROM \$\{NODE_IMAGE\}\nARG NODE_IMAGE\nRUN case "\$NODE_IMAGE" in \*@sha256:\*\)/m,
  )
})

test('the services compile', async () => {
  expect(await runCommand(['tsc', '--noEmit', '-p', deploy])).toMatchObject({ code: 0, output: '' })
})

test('no password, key or address of a machine is in a file', async () => {
  for (const entry of readdirSync(deploy, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const text = await readFile(join(entry.parentPath, entry.name), 'utf8')
    expect(`${entry.name}\n${text}`).not.toMatch(/postgres(ql)?:\/\/[^\s$]*:[^\s$]*@|BEGIN (RSA |EC )?PRIVATE KEY|password '/i)
  }
})

test('every action of the workflows is pinned by a full commit, and no workflow may write by default', async () => {
  const folder = join(repositoryRoot, '.github', 'workflows')
  for (const name of readdirSync(folder)) {
    const text = await readFile(join(folder, name), 'utf8')
    const used = [...text.matchAll(/uses: (.+)$/gm)].map(([, action = '']) => action)
    expect([name, used.filter((action) => !/^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(action))]).toEqual([name, []])
    expect([name, /^permissions:\n  contents: read\n\w/m.test(text)]).toEqual([name, true])
    expect([name, text.split('actions/checkout@').length - 1]).toEqual([
      name,
      text.split('persist-credentials: false').length - 1,
    ])
  }
})
