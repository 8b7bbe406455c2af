<p>{{ __('page.hello', ['name' => $name]) }}</p>
<p>{{ $shared ?? 'nothing is shared' }}</p>
@foreach ($errors->all() as $error)<p>{{ $error }}</p>@endforeach
