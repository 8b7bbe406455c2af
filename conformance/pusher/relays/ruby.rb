# frozen_string_literal: true

# Ruby's `pusher` behind relays.py: one command on a line of JSON in, one answer out. It is found as any gem is, or by RUBYLIB.

require 'json'
require 'logger'
require 'pusher'
require 'rbnacl'
require 'stringio'

# `ruby ruby.rb probe` only says whether the library is there.
exit if ARGV.first == 'probe'

# What a Rack request has for the library.
Request = Struct.new(:env, :body, :content_type)

def answer(client, command)
  with = ->(name, key) { command[name] ? { key => command[name] } : {} }
  case command['Do']
  when 'trigger' then client.trigger(command['Channels'], command['Event'], command['Data'], with['SocketID', :socket_id].merge(with['Info', :info]))
  when 'batch' then client.trigger_batch(command['Batch'].map { |one| { channel: one['Channel'], name: one['Name'], data: one['Data'] } })
  when 'authorize' then client.authenticate(command['Channel'], command['SocketID'], command['User'] && { user_id: command['User'], user_info: command['UserInfo'] })
  when 'sign in' then client.authenticate_user(command['SocketID'], { id: command['User'] })
  when 'channel' then client.channel_info(command['Channel'], with['Info', :info])
  when 'channels' then client.channels(with['Prefix', :filter_by_prefix].merge(with['Info', :info]))
  when 'users' then client.channel_users(command['Channel'])
  when 'webhook'
    environment = command['Headers'].to_h { |name, value| ["HTTP_#{name.upcase.tr('-', '_')}", value] }
    hook = client.webhook(Request.new(environment, StringIO.new(command['Body']), 'application/json'))
    raise Pusher::Error, 'the signature is wrong' unless hook.valid?

    { events: hook.events }
  else raise NotImplementedError, 'unsupported'
  end
end

# Its own goes to the standard output.
Pusher.logger = Logger.new($stderr, level: Logger::ERROR)
app = JSON.parse(ENV.fetch('RELAY'))
host, port = app['Host'].split(':')
$stdout.sync = true
while (line = $stdin.gets)
  command = JSON.parse(line)
  begin
    client = Pusher::Client.new(app_id: app['ID'], key: app['Key'], secret: command['Secret'] || app['Secret'], host: host, port: port.to_i, scheme: 'http',
                                use_tls: false)
    client.encryption_master_key_base64 = app['EncryptionKey'] if app['EncryptionKey']
    reply = { result: answer(client, command) }
  rescue NotImplementedError, StandardError => e
    reply = { error: "#{e.class}: #{e.message}", unsupported: e.is_a?(NotImplementedError) }
  end
  puts JSON.generate(reply)
end
